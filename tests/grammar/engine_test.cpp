#include "grammar/engine.h"

#include <gmock/gmock.h>

#include <deque>
#include <random>
#include <thread>

#include "tests/support/error_message.h"
#include "tests/support/letter_tokenizer.h"

namespace specdec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using EngineClock = std::chrono::steady_clock;
using Engine = std::shared_ptr<GrammarEngine>;

constexpr Token kEngineEnd = 1;

/// A control token, an end token, printable ASCII, and pairs of what JSON has often: 120 tokens.
std::vector<std::string> engine_tokens() {
  std::vector<std::string> tokens = {"", ""};
  for (char c = ' '; c < '\x7f'; ++c) {
    tokens.emplace_back(1, c);
  }
  for (const char* pair :
       {"{\"", "\":", ",\"", "\"}", "[1", "1,", "]}", "ab", "true", "12", "ba"}) {
    tokens.emplace_back(pair);
  }
  while (tokens.size() < 120) {
    tokens.push_back("x" + std::to_string(tokens.size()));
  }
  return tokens;
}

EngineOptions ended_by(Token token) {
  EngineOptions options;
  options.end_tokens = {token};
  options.threads = 3;
  return options;
}

Engine make_engine(EngineOptions options = ended_by(kEngineEnd)) {
  return std::make_shared<GrammarEngine>(engine_tokens(), options);
}

GrammarSource engine_source(GrammarKind kind, std::string text) {
  GrammarSource source;
  source.kind = kind;
  source.text = std::move(text);
  return source;
}

const GrammarSource kRecords = engine_source(
    GrammarKind::kJsonSchema,
    R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}},
        "b": {"type": "string"}, "c": {"type": "boolean"}}, "additionalProperties": false})");

/// A grammar whose strings have to be looked at one state after the other, a million of them.
GrammarSource slow_source() {
  auto source = engine_source(GrammarKind::kJsonSchema, R"({"type": "string", "allOf": [
      {"pattern": "^([ab][ab])*a(a|b){19}$"}, {"not": {"pattern": "^[ab]*a(a|b){19}$"}}]})");
  source.limits.max_regex_states = 1'000'000'000;
  return source;
}

double seconds_since(EngineClock::time_point begin) {
  return std::chrono::duration<double>(EngineClock::now() - begin).count();
}

CheckedMatcher engine_matcher(const Engine& engine, const GrammarSource& source) {
  return {engine, engine->compile(source)};
}

std::vector<int32_t> engine_row(const CheckedMatcher& matcher, const Engine& engine) {
  std::vector<int32_t> row(static_cast<size_t>(engine->words()), 0x5a5a5a5a);
  matcher.fill(row);
  return row;
}

bool has_bit(const std::vector<int32_t>& row, Token token) {
  return (static_cast<uint32_t>(row[static_cast<size_t>(token / 32)]) >> (token % 32) & 1) != 0;
}

/// Takes a random allowed token; false at the end.
bool random_step(CheckedMatcher& matcher, std::mt19937& random) {
  if (matcher.is_ended()) {
    return false;
  }
  const std::vector<Token> tokens = matcher.mask().tokens();
  return matcher.accept(tokens[random() % tokens.size()]);
}

TEST(GrammarEngineTest, BitsAreLowestFirstAndNothingBeyondTheTokens) {
  EngineOptions options = ended_by(kEngineEnd);
  options.vocab_size = 200;
  const Engine engine = make_engine(options);
  ASSERT_EQ(engine->words(), 7);
  const std::vector<std::string> tokens = engine_tokens();
  const CheckedMatcher matcher =
      engine_matcher(engine, engine_source(GrammarKind::kRegex, "[a-c]*|x119"));
  const std::vector<int32_t> row = engine_row(matcher, engine);
  for (Token token = 0; token < 200; ++token) {
    const std::string text = token < 120 ? tokens[static_cast<size_t>(token)] : "";
    const bool letters = text == "x" || text == "x119" ||
                         (!text.empty() && text.find_first_not_of("abc") == std::string::npos);
    EXPECT_EQ(has_bit(row, token), letters || token == kEngineEnd) << token;
    EXPECT_EQ(has_bit(row, token), matcher.allows(token)) << token;
  }
}

TEST(GrammarEngineTest, BatchIsTheSameAsSingles) {
  const Engine engine = make_engine();
  std::mt19937 random(1);
  const auto width = static_cast<size_t>(engine->words());
  for (int64_t count = 1; count < 40; count += 6) {
    std::deque<CheckedMatcher> matchers;
    std::vector<const CheckedMatcher*> batch;
    std::vector<int64_t> rows(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      CheckedMatcher& matcher = matchers.emplace_back(engine, engine->compile(kRecords));
      for (int64_t steps = 0; steps < i % 17 && matcher.length() == steps; ++steps) {
        const std::vector<Token> tokens = matcher.mask().tokens();
        const Token token = tokens[random() % tokens.size()];
        EXPECT_TRUE(token == kEngineEnd || matcher.accept(token));
      }
      batch.push_back(&matcher);
      rows[static_cast<size_t>(i)] = count - i;  // row 0 is nobody's
    }
    std::vector<int32_t> bits(width * static_cast<size_t>(count + 1), 77);
    engine->fill_batch(batch, bits, rows);
    EXPECT_EQ(bits[0], 77) << "a row that no matcher has was written";
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto begin = bits.begin() + rows[i] * engine->words();
      EXPECT_EQ(std::vector<int32_t>(begin, begin + engine->words()),
                engine_row(*batch[i], engine));
    }
  }
}

TEST(GrammarEngineTest, RollbackIsAsIfNeverAccepted) {
  const Engine engine = make_engine();
  std::mt19937 random(2);
  for (int walk = 0; walk < 30; ++walk) {
    CheckedMatcher matcher = engine_matcher(engine, kRecords);
    std::vector<std::vector<int32_t>> rows = {engine_row(matcher, engine)};
    while (rows.size() < 20 && random_step(matcher, random) && !matcher.is_ended()) {
      rows.push_back(engine_row(matcher, engine));
    }
    const CheckedMatcher copy = matcher;
    if (matcher.is_ended()) {
      matcher.rollback(1);
    }
    while (matcher.length() > 0) {
      const auto back = std::min<int64_t>(matcher.length(), 1 + static_cast<int64_t>(random() % 3));
      matcher.rollback(back);
      EXPECT_EQ(engine_row(matcher, engine), rows[static_cast<size_t>(matcher.length())]);
    }
    EXPECT_GE(copy.length(), 1) << "a copy has its own place";
    matcher.reset();
    EXPECT_EQ(engine_row(matcher, engine), rows[0]);
  }
}

TEST(GrammarEngineTest, StringsCountAsOneStep) {
  const Engine engine = make_engine();
  CheckedMatcher matcher = engine_matcher(engine, kRecords);
  EXPECT_TRUE(matcher.accept_bytes(R"({"a":[1,)"));
  EXPECT_FALSE(matcher.accept_bytes("2]]"));
  EXPECT_EQ(matcher.length(), 1);
  EXPECT_TRUE(matcher.accept_bytes("2]}"));
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_FALSE(matcher.is_ended());
  EXPECT_TRUE(matcher.accept(kEngineEnd));
  EXPECT_TRUE(matcher.is_ended());
  EXPECT_EQ(matcher.length(), 3);
  matcher.rollback(2);
  EXPECT_FALSE(matcher.is_complete());
}

TEST(GrammarEngineTest, KnowsWhatIsForced) {
  const std::vector<std::string> pieces = {"a", "b", "ab", "ba", ""};
  EngineOptions options;
  options.end_tokens = {4};
  const auto engine =
      std::make_shared<GrammarEngine>(std::make_shared<LetterTokenizer>(pieces), options);
  CheckedMatcher matcher =
      engine_matcher(engine, engine_source(GrammarKind::kRegex, "b(a|b)aabab(aa|ab)"));
  EXPECT_EQ(matcher.forced_bytes(), "b");
  EXPECT_TRUE(matcher.accept(1));
  EXPECT_TRUE(matcher.accept(1));
  EXPECT_EQ(matcher.forced_bytes(), "aababa");
  EXPECT_THAT(matcher.forced_tokens(9), ElementsAre(0, 2, 2));
  EXPECT_THAT(matcher.forced_tokens(1), ElementsAre(0));
  matcher.rollback(1);
  EXPECT_TRUE(matcher.accept_bytes("b"));
  EXPECT_THAT(matcher.forced_tokens(9), ElementsAre(0, 2, 2)) << "after a string too";
}

TEST(GrammarEngineTest, CompilesEverySourceOnce) {
  const Engine engine = make_engine();
  const auto first = engine->compile(kRecords);
  EXPECT_EQ(engine->compile(kRecords), first);
  std::vector<GrammarSource> others(10, kRecords);
  others[0].text += " ";
  others[1].schema.whitespace = "any";
  others[2].schema.schema_order = false;
  others[3].schema.assert_formats = false;
  others[4].schema.escapes = EscapeStyle::kAny;
  others[5].schema.registry = {{"http://a", "{}"}};
  others[6].limits.max_steps = 7777;
  others[7] = engine_source(GrammarKind::kLark, "start: /a/");
  others[8] = others[7];
  others[8].start = "start";
  others[9].schema.whitespace = "any";
  others[9].schema.max_whitespace = 5;
  std::vector<std::shared_ptr<const CompiledGrammar>> compiled = {first};
  for (const GrammarSource& source : others) {
    compiled.push_back(engine->compile(source));
    EXPECT_EQ(engine->compile(source), compiled.back());
  }
  EXPECT_EQ(std::set(compiled.begin(), compiled.end()).size(), 11U) << "each is one of its own";
  EXPECT_EQ(engine->cached_grammars(), 11U);
  GrammarSource bounded = kRecords;
  bounded.schema.max_whitespace = 5;
  EXPECT_THROW((void)engine->compile(bounded), GrammarError) << "with whitespace any only";
  GrammarSource named = kRecords;
  named.name = "records.json";
  EXPECT_EQ(engine->compile(named), first);
  engine->clear_cache();
  EXPECT_EQ(engine->cached_grammars(), 0U);
  EXPECT_NE(engine->compile(kRecords), first);
}

TEST(GrammarEngineTest, KeepsSoManyBytesAndTheLatestUsed) {
  EngineOptions options = ended_by(kEngineEnd);
  options.max_cache_bytes = 700'000;
  const Engine engine = make_engine(options);
  const auto first = engine->compile(kRecords);
  for (int i = 0; i < 40; ++i) {
    (void)engine->compile(engine_source(GrammarKind::kRegex, "a{" + std::to_string(i) + "}"));
    EXPECT_EQ(engine->compile(kRecords), first) << "used all the time";
    EXPECT_LE(engine->cached_bytes(), options.max_cache_bytes);
  }
  EXPECT_GT(engine->cached_grammars(), 5U);
  EXPECT_LT(engine->cached_grammars(), 12U);
}

TEST(GrammarEngineTest, CompilesAnewWhatIsUsedUp) {
  const Engine engine = make_engine();
  GrammarSource source = engine_source(GrammarKind::kJsonSchema, R"({"type": "object"})");
  source.limits.max_states = 200;
  const auto first = engine->compile(source);
  CheckedMatcher matcher(engine, first);
  ASSERT_TRUE(matcher.accept_bytes("{"));
  for (int name = 0; name < 30 && !first->is_used_up(); ++name) {
    ASSERT_TRUE(matcher.accept_bytes(fmt::format(R"("name {}":0,)", name)));
  }
  ASSERT_TRUE(first->is_used_up());
  const auto second = engine->compile(source);
  EXPECT_NE(second, first);
  EXPECT_EQ(engine->compile(source), second);
  EXPECT_EQ(engine->cached_grammars(), 1U);
}

/// Counts in `count` how often the grammar, or one made of it, is compiled anew. The engine, which
/// keeps the grammar, must outlive it.
void count_compiles(const std::shared_ptr<const CompiledGrammar>& grammar, GrammarEngine& engine,
                    const GrammarSource& source, int& count) {
  std::const_pointer_cast<CompiledGrammar>(grammar)->remember([&engine, source, &count] {
    ++count;
    engine.clear_cache();
    auto anew = engine.compile(source);
    count_compiles(anew, engine, source, count);
    return anew;
  });
}

/// A grammar of objects with 200 states, whose compilations are counted.
std::shared_ptr<const CompiledGrammar> compile_few_states(GrammarEngine& engine, int& compiles) {
  GrammarSource source = engine_source(GrammarKind::kJsonSchema, R"({"type": "object"})");
  source.limits.max_states = 200;
  auto grammar = engine.compile(source);
  count_compiles(grammar, engine, source, compiles);
  return grammar;
}

/// A text that reaches a limit alone is compiled anew once; then every call says so at once.
TEST(GrammarEngineTest, ALimitIsReachedOnce) {
  const Engine engine = make_engine();
  int compiles = 0;
  const auto grammar = compile_few_states(*engine, compiles);
  CheckedMatcher matcher(engine, grammar);
  ASSERT_TRUE(matcher.accept_bytes("{\""));
  while (matcher.accept_bytes("a")) {
    ASSERT_LT(matcher.length(), 200);
  }
  EXPECT_EQ(compiles, 1);
  const int64_t length = matcher.length();
  std::vector<int32_t> row(static_cast<size_t>(engine->words()));
  for (Token token = 2; token < 120; ++token) {
    const bool was_allowed = matcher.allows(token);
    EXPECT_FALSE(matcher.accept(token)) << was_allowed;
    EXPECT_THAT(matcher.limit().value_or(""), HasSubstr("raise max_states"));
    matcher.fill(row);
    (void)matcher.mask();
    (void)matcher.forced_bytes();
    (void)matcher.forced_tokens(8);
    (void)matcher.is_complete();
  }
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(matcher.length(), length);
  const CheckedMatcher copy = matcher;
  EXPECT_TRUE(copy.limit());
  EXPECT_EQ(compiles, 1);
  matcher.rollback(length / 2);
  EXPECT_FALSE(matcher.limit());
  EXPECT_TRUE(matcher.accept_bytes("a"));
}

/// Where no mask can be made, the same; where only other texts took the states, nothing is missing.
TEST(GrammarEngineTest, AnUnknownMaskIsLookedForOnce) {
  const Engine engine = make_engine();
  int limited = 0;
  for (uint64_t states = 5; states < 60; ++states) {
    GrammarSource source = engine_source(
        GrammarKind::kJsonSchema,
        R"({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}})");
    source.limits.max_states = states;
    int compiles = 0;
    try {
      const auto grammar = engine->compile(source);
      count_compiles(grammar, *engine, source, compiles);
      CheckedMatcher matcher(engine, grammar);
      std::mt19937 random(static_cast<uint32_t>(states));
      while (matcher.length() < 50 && !matcher.is_ended() && !matcher.mask().empty()) {
        if (!random_step(matcher, random)) {
          break;
        }
        ASSERT_LE(compiles, matcher.length() + 1);
      }
      const int before = compiles;
      const bool at_limit = matcher.limit().has_value();
      limited += at_limit ? 1 : 0;
      for (int call = 0; call < 10 && at_limit; ++call) {
        (void)matcher.mask();
        EXPECT_TRUE(matcher.limit());
        EXPECT_FALSE(matcher.accept_bytes("{"));
        (void)matcher.forced_tokens(4);
      }
      EXPECT_EQ(compiles, before) << states << " states";
    } catch (const GrammarError&) {  // too few to begin with
    }
  }
  EXPECT_GT(limited, 5);
}

/// Tokens that the grammar forbids where other texts have taken its states compile it once.
TEST(GrammarEngineTest, ForbiddenTokensCompileOnce) {
  const Engine engine = make_engine();
  int compiles = 0;
  const auto grammar = compile_few_states(*engine, compiles);
  CheckedMatcher other(engine, grammar);
  ASSERT_TRUE(other.accept_bytes("{\""));
  CheckedMatcher matcher = other;
  (void)matcher.mask();
  while (other.accept_bytes("b")) {
    ASSERT_LT(other.length(), 200);
  }
  compiles = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    ASSERT_TRUE(matcher.accept_bytes("ab"));
    EXPECT_FALSE(matcher.accept_bytes("\n"));
    EXPECT_FALSE(matcher.limit());
    matcher.rollback(1);
    EXPECT_FALSE(matcher.accept_bytes("\n"));
    EXPECT_FALSE(matcher.accept(kEngineEnd));
  }
  EXPECT_EQ(compiles, 1);
}

TEST(GrammarEngineTest, GivesUpWhenTheTimeIsOver) {
  const Engine engine = make_engine();
  for (const double seconds : {0.0, 0.05}) {
    const auto begin = EngineClock::now();
    EXPECT_THAT(
        error_message<GrammarInterrupted>(
            [&] { (void)engine->compile(slow_source(), {.seconds = seconds}); }),
        StartsWith("compiling the grammar took longer than " + fmt::format("{} s", seconds)));
    EXPECT_LT(seconds_since(begin), 1.0);
  }
  EXPECT_EQ(engine->cached_grammars(), 0U);
  (void)engine->compile(kRecords, {.seconds = 60.0});
  EXPECT_THAT(error_message<Error>([&] { (void)engine->compile(kRecords, {.seconds = -1.0}); }),
              HasSubstr("not negative"));
}

TEST(GrammarEngineTest, IsCancelledByAnotherThread) {
  const Engine engine = make_engine();
  std::atomic<bool> cancelled = false;
  std::string first;
  std::thread compiling([&] {
    first = error_message<GrammarInterrupted>(
        [&] { (void)engine->compile(slow_source(), {.cancelled = &cancelled}); });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // Waiting for another compile counts too.
  EXPECT_THAT(error_message<GrammarInterrupted>(
                  [&] { (void)engine->compile(kRecords, {.seconds = 0.05}); }),
              HasSubstr("longer than 0.05 s"));
  cancelled = true;
  compiling.join();
  EXPECT_EQ(first, "compiling the grammar was cancelled");
  EXPECT_EQ(engine_row(engine_matcher(engine, kRecords), engine).size(), 4U);
}

TEST(GrammarEngineTest, SaysWhatIsWrongWithAnEngine) {
  const auto message = [](const EngineOptions& options) {
    return error_message<Error>([&] { (void)make_engine(options); });
  };
  EXPECT_THAT(message({}), HasSubstr("name at least one"));
  EXPECT_EQ(message(ended_by(120)), "end token 120 is outside the vocabulary of 120 tokens");
  EngineOptions narrow = ended_by(kEngineEnd);
  narrow.vocab_size = 100;
  EXPECT_THAT(message(narrow), HasSubstr("vocab_size is 100, but the tokenizer has 120 tokens"));
  GrammarSource canonical = kRecords;
  canonical.cuts = Cuts::kCanonical;
  EXPECT_THAT(error_message<Error>([&] { (void)make_engine()->compile(canonical); }),
              HasSubstr("needs a tokenizer"));
  EXPECT_THAT(
      error_message<GrammarError>([&] {
        (void)make_engine()->compile(engine_source(GrammarKind::kJsonSchema, R"({"type": 1})"));
      }),
      HasSubstr("#/type"));
}

TEST(GrammarEngineTest, SaysWhatIsWrongWithACall) {
  const Engine engine = make_engine();
  CheckedMatcher matcher = engine_matcher(engine, engine_source(GrammarKind::kRegex, "ab"));
  const auto message = [](const auto& call) { return error_message<Error>(call); };
  for (const Token token : {-1, 120, 1 << 30}) {
    EXPECT_EQ(message([&] { (void)matcher.accept(token); }),
              fmt::format("token {} is outside the vocabulary of 120 tokens", token));
    EXPECT_THAT(message([&] { (void)matcher.allows(token); }), StartsWith("token"));
  }
  std::vector<int32_t> bits(5);
  EXPECT_EQ(message([&] { matcher.fill(bits); }),
            "a row of 5 words for 120 tokens; it must have 4");
  EXPECT_EQ(message([&] { matcher.rollback(1); }), "1 steps to roll back, but 0 were accepted");
  EXPECT_THAT(message([&] { matcher.rollback(-1); }), StartsWith("-1 steps"));
  const Engine other = make_engine();
  EXPECT_THAT(message([&] { CheckedMatcher(other, engine->compile(kRecords)); }),
              HasSubstr("another engine"));
  ASSERT_TRUE(matcher.accept_bytes("ab"));
  ASSERT_TRUE(matcher.accept(kEngineEnd));
  bits.resize(4);
  for (const auto& ended :
       {message([&] { (void)matcher.accept(kEngineEnd); }),
        message([&] { (void)matcher.accept_bytes("a"); }), message([&] { matcher.fill(bits); }),
        message([&] { (void)matcher.allows(kEngineEnd); })}) {
    EXPECT_THAT(ended, StartsWith("the text has ended"));
  }
  EXPECT_EQ(matcher.forced_bytes(), "");
}

TEST(GrammarEngineTest, SaysWhatIsWrongWithABatch) {
  const Engine engine = make_engine();
  CheckedMatcher a = engine_matcher(engine, kRecords);
  CheckedMatcher b = a;
  const Engine other = make_engine();
  const CheckedMatcher stranger = engine_matcher(other, kRecords);
  std::vector<int32_t> bits(8);
  const auto message = [&](std::vector<const CheckedMatcher*> batch, std::span<int32_t> words,
                           std::vector<int64_t> rows = {}) {
    return error_message<Error>([&] { engine->fill_batch(batch, words, rows); });
  };
  EXPECT_THAT(message({&a, &b}, std::span(bits).first(7)), StartsWith("a bitmask of 7 words"));
  EXPECT_THAT(message({&a, &b}, std::span(bits).first(4)),
              StartsWith("matcher 1 shall fill row 1"));
  EXPECT_THAT(message({&a}, bits, {2}), StartsWith("matcher 0 shall fill row 2"));
  EXPECT_THAT(message({&a}, bits, {-1}), StartsWith("matcher 0 shall fill row -1"));
  EXPECT_THAT(message({&a, &b}, bits, {1, 1}), StartsWith("matcher 1 shall fill row 1"));
  EXPECT_EQ(message({&a, &b}, bits, {1}), "2 matchers for 1 rows");
  EXPECT_THAT(message({&a, &a}, bits), HasSubstr("stands twice in a batch"));
  EXPECT_THAT(message({&a, &stranger}, bits), StartsWith("matcher 1 belongs to another engine"));
  ASSERT_TRUE(b.accept_bytes("{}"));
  ASSERT_TRUE(b.accept(kEngineEnd));
  EXPECT_THAT(message({&a, &b}, bits), StartsWith("matcher 1: the text has ended"));
  engine->fill_batch({}, bits);
  EXPECT_EQ(message({&a}, bits), "no error") << "a refused batch holds no matcher";
}

TEST(GrammarEngineTest, TwoThreadsInAMatcherAreAnError) {
  const Engine engine = make_engine();
  CheckedMatcher matcher = engine_matcher(engine, engine_source(GrammarKind::kRegex, "a*"));
  const Token a = 2 + 'a' - ' ';
  std::atomic<int64_t> accepted = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      std::vector<int32_t> row(4);
      for (int i = 0; i < 3000; ++i) {
        try {
          accepted += matcher.accept(a) ? 1 : 0;
          matcher.fill(row);
          EXPECT_TRUE(has_bit(row, a));
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), StartsWith("a matcher is used by two threads at once"));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(matcher.length(), accepted);
  EXPECT_GT(accepted, 0);
}

TEST(GrammarEngineTest, EachThreadHasMatchersOfItsOwn) {
  const Engine engine = make_engine();
  const CheckedMatcher start = engine_matcher(engine, kRecords);
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&engine, matcher = start, thread]() mutable {
      std::mt19937 random(thread);
      for (int steps = 0; steps < 300; ++steps) {
        (void)engine->compile(
            engine_source(GrammarKind::kRegex, "b{" + std::to_string(steps) + "}"));
        if (!random_step(matcher, random)) {
          matcher.reset();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace specdec
