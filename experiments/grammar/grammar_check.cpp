#include "experiments/grammar/grammar_check.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "experiments/terminal/plain_text.h"
#include "grammar/grammar_matcher.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// Times masks, and keeps the times.
class TimedMasks {
 public:
  TimedMasks(bool write_bits, int64_t vocab_size, std::vector<double>& times)
      : words_(write_bits ? static_cast<size_t>((vocab_size + 31) / 32) : 0), times_(times) {}

  TokenMask next(const GrammarMatcher& matcher) {
    const auto begin = Clock::now();
    TokenMask mask = matcher.mask();
    if (!words_.empty()) {
      mask.write(words_);
    }
    times_.push_back(microseconds_since(begin));
    return mask;
  }

 private:
  std::vector<uint32_t> words_;
  std::vector<double>& times_;
};

/// The text around the byte where a walk stopped.
std::string around(const std::string& text, size_t at) {
  constexpr size_t kBefore = 40;
  constexpr size_t kAfter = 20;
  at = std::min(at, text.size());
  const size_t from = at > kBefore ? at - kBefore : 0;
  return one_line(text.substr(from, at - from), kBefore + 1) + " >>> " +
         one_line(text.substr(at, kAfter), kAfter + 1);
}

/// Whether the grammar names that token as what comes next.
bool may_name(GrammarMatcher matcher, Token token) {
  const std::vector<Token>& named = matcher.grammar().named_tokens();
  return std::binary_search(named.begin(), named.end(), token) && matcher.accept(token);
}

/// Throws InternalError where masks and matcher disagree.
InstanceResult walk(GrammarMatcher matcher, const GrammarInstance& instance,
                    const std::vector<Token>& tokens, TimedMasks& masks) {
  const GrammarVocabulary& vocabulary = matcher.grammar().vocabulary();
  InstanceResult result{.valid = instance.valid, .accepted = false, .note = instance.description};
  const auto add_note = [&](const std::string& note) {
    result.note += (result.note.empty() ? "" : "; ") + note;
  };
  const auto reaches_limit = [&] {
    if (const auto limit = matcher.limit()) {
      result.limited = true;
      add_note(*limit);
    }
    return result.limited;
  };
  size_t bytes = 0;
  for (const Token token : tokens) {
    const bool allowed = masks.next(matcher).allows(token);
    if (reaches_limit()) {  // asked here too, for the next step forgets it
      return result;
    }
    const bool accepted = matcher.accept(token);
    if (reaches_limit()) {
      return result;
    }
    SPECDEC_CHECK(allowed == accepted, "the mask {} token {}, the matcher {} it: {}",
                  allowed ? "allows" : "forbids", token, accepted ? "accepts" : "refuses",
                  around(instance.text, bytes));
    if (!accepted) {
      add_note(fmt::format("token {} at byte {} of {}: {}", token, bytes, instance.text.size(),
                           around(instance.text, bytes)));
      return result;
    }
    const size_t spelled = vocabulary.bytes(token).size();
    bytes += spelled > 0 ? spelled : vocabulary.token_name(token).size();
  }
  result.accepted = matcher.is_complete();
  const TokenMask mask = masks.next(matcher);
  if (reaches_limit()) {
    return result;
  }
  for (const Token end : matcher.is_ended() ? std::vector<Token>() : vocabulary.end_tokens()) {
    const bool may_end = result.accepted || may_name(matcher, end);
    SPECDEC_CHECK(mask.allows(end) == may_end,
                  "the mask {} end token {} after a text that is {}: {}",
                  mask.allows(end) ? "allows" : "forbids", end,
                  result.accepted ? "complete" : "not complete", one_line(instance.text, 60));
  }
  if (!result.accepted) {
    add_note("may not end after " + around(instance.text, instance.text.size()));
  }
  return result;
}

std::shared_ptr<const CompiledGrammar> compile(const GrammarCase& test_case,
                                               const std::shared_ptr<GrammarVocabulary>& vocabulary,
                                               const Tokenizer& tokenizer,
                                               const CheckOptions& options) {
  if (!test_case.grammar) {
    return compile_json_schema(vocabulary, test_case.schema, options.schema, options.limits, true);
  }
  if (test_case.grammar->cuts == Cuts::kCanonical) {
    vocabulary->learn_cuts(tokenizer);
  }
  return compile_grammar(vocabulary, *test_case.grammar);
}

std::vector<Token> tokens_of(const GrammarInstance& instance, const GrammarVocabulary& vocabulary,
                             const Tokenizer& tokenizer) {
  if (instance.pieces.empty()) {
    return spell_tokens(instance.text, vocabulary, tokenizer);
  }
  std::vector<Token> tokens;
  for (const GrammarInstance::Piece& piece : instance.pieces) {
    const auto more = piece.is_token ? std::vector{vocabulary.require_token(piece.text)}
                                     : spell_tokens(piece.text, vocabulary, tokenizer);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

void check(const GrammarCase& test_case, const std::shared_ptr<GrammarVocabulary>& vocabulary,
           const Tokenizer& tokenizer, const CheckOptions& options, CaseResult& result) {
  TimedMasks masks(options.write_bits, vocabulary->vocab_size(), result.mask_us);
  const auto begin = Clock::now();
  std::shared_ptr<const CompiledGrammar> grammar;
  try {
    grammar = compile(test_case, vocabulary, tokenizer, options);
  } catch (const GrammarError& error) {
    result.compile_us = microseconds_since(begin);
    result.error = error.what();
    return;
  }
  result.compile_us = microseconds_since(begin);
  const GrammarMatcher start(grammar);
  (void)masks.next(start);
  result.first_mask_us = microseconds_since(begin);
  result.compiled = true;
  for (const GrammarInstance& instance : test_case.tests) {
    const auto tokens = tokens_of(instance, *vocabulary, tokenizer);
    result.tests.push_back(walk(start, instance, tokens, masks));
  }
}

/// The smallest time that at least that share of them does not exceed; 0 of none.
double quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) {
    return 0.0;
  }
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[std::min(sorted.size(), static_cast<size_t>(std::max(1.0, rank))) - 1];
}

Cells quantile_row(const std::string& title, std::vector<double> times, double scale) {
  std::sort(times.begin(), times.end());
  Cells cells = {title, std::to_string(times.size())};
  for (const double share : {0.5, 0.9, 0.99, 0.999, 1.0}) {
    cells.push_back(number_text(quantile(times, share) * scale, 2));
  }
  return cells;
}

struct AnswerCounts {
  int64_t compiled = 0, with_tests = 0, right = 0, internal = 0;
  int64_t limited = 0;                                  ///< instances
  int64_t schemas_accepting = 0, schemas_refusing = 0;  ///< wrongly
  int64_t valid = 0, valid_accepted = 0, invalid = 0, invalid_refused = 0;
};

void count(const CaseResult& result, AnswerCounts& counts) {
  counts.compiled += result.compiled ? 1 : 0;
  counts.internal += result.internal_error ? 1 : 0;
  counts.with_tests += result.has_tests ? 1 : 0;
  counts.right += result.has_tests && result.all_right() ? 1 : 0;
  bool accepts = false;
  bool refuses = false;
  for (const InstanceResult& test : result.tests) {
    counts.limited += test.limited ? 1 : 0;
    if (test.limited) {
      continue;
    }
    accepts = accepts || (!test.valid && test.accepted);
    refuses = refuses || (test.valid && !test.accepted);
    counts.valid += test.valid ? 1 : 0;
    counts.valid_accepted += test.valid && test.accepted ? 1 : 0;
    counts.invalid += test.valid ? 0 : 1;
    counts.invalid_refused += !test.valid && !test.accepted ? 1 : 0;
  }
  counts.schemas_accepting += accepts ? 1 : 0;
  counts.schemas_refusing += refuses ? 1 : 0;
}

std::string share_text(int64_t part, int64_t whole) {
  return whole == 0 ? fmt::format("{}", part)
                    : fmt::format("{} ({:.2f} %)", part,
                                  100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

double peak_memory_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024.0 / 1e6;
}

}  // namespace

bool CaseResult::all_right() const {
  return compiled && !error && std::all_of(tests.begin(), tests.end(), [](const auto& test) {
           return !test.limited && test.valid == test.accepted;
         });
}

std::vector<Token> spell_tokens(const std::string& text, const GrammarVocabulary& vocabulary,
                                const Tokenizer& tokenizer) {
  std::vector<Token> tokens = tokenizer.encode_after(TextStart::kContinued, text);
  std::string spelled;
  for (const Token token : tokens) {
    spelled += vocabulary.bytes(token);
  }
  if (spelled == text) {
    return tokens;
  }
  tokens.clear();
  for (const char c : text) {
    const auto piece = tokenizer.find_piece(fmt::format("<0x{:02X}>", static_cast<uint8_t>(c)));
    SPECDEC_CHECK(piece, "the tokenizer spells other text, and has no byte pieces");
    tokens.push_back(*piece);
  }
  return tokens;
}

CaseResult check_grammar_case(const GrammarCase& test_case,
                              const std::shared_ptr<GrammarVocabulary>& vocabulary,
                              const Tokenizer& tokenizer, const CheckOptions& options) {
  CaseResult result;
  result.id = test_case.id;
  result.has_tests = !test_case.tests.empty();
  try {
    check(test_case, vocabulary, tokenizer, options, result);
  } catch (const GrammarError& error) {  // a test's token
    result.error = error.what();
  } catch (const std::exception& error) {
    result.internal_error = true;
    result.error = fmt::format("internal error: {}", error.what());
  }
  return result;
}

std::vector<std::string> problem_lines(const CaseResult& result) {
  std::vector<std::string> lines;
  const std::string name = one_line(result.id, 80);
  for (size_t i = 0; i < result.tests.size(); ++i) {
    const InstanceResult& test = result.tests[i];
    if (test.limited || test.valid != test.accepted) {
      lines.push_back(fmt::format("{}: test {}, {}{}{}", name, i + 1,
                                  test.limited ? "reaches a limit"
                                  : test.valid ? "valid, is refused"
                                               : "invalid, is accepted",
                                  test.note.empty() ? "" : ": ", one_line(test.note, 200)));
    }
  }
  if (result.error) {
    lines.push_back(fmt::format("{}: {}", name, one_line(*result.error, 300)));
  }
  return lines;
}

std::string case_json(const CaseResult& result) {
  nlohmann::ordered_json json;
  json["id"] = result.id;
  json["compiled"] = result.compiled;
  json["error"] = result.error ? nlohmann::ordered_json(*result.error) : nullptr;
  json["compile_us"] = result.compile_us;
  json["first_mask_us"] = result.first_mask_us;
  json["tests"] = nlohmann::ordered_json::array();
  for (const InstanceResult& test : result.tests) {
    json["tests"].push_back({{"valid", test.valid}, {"accepted", test.accepted}});
    if (test.limited) {
      json["tests"].back()["grammar_limit"] = true;
    }
  }
  json["mask_us"] = result.mask_us;
  return json_text(json) + "\n";
}

void print_grammar_totals(std::ostream& out, const std::vector<CaseResult>& results,
                          uint64_t vocabulary_walks) {
  AnswerCounts counts;
  std::vector<double> compile_us;
  std::vector<double> first_mask_us;
  std::vector<double> mask_us;
  for (const CaseResult& result : results) {
    count(result, counts);
    if (result.compiled) {
      compile_us.push_back(result.compile_us);
      first_mask_us.push_back(result.first_mask_us);
    }
    mask_us.insert(mask_us.end(), result.mask_us.begin(), result.mask_us.end());
  }
  const auto schemas = static_cast<int64_t>(results.size());
  out << fmt::format("grammars                    {}\n", schemas)
      << fmt::format("compiled                    {}\n", share_text(counts.compiled, schemas))
      << fmt::format("with tests                  {}\n", counts.with_tests)
      << fmt::format("all right, of these         {}\n",
                     share_text(counts.right, counts.with_tests))
      << fmt::format("accept an invalid instance  {}\n", counts.schemas_accepting)
      << fmt::format("refuse a valid instance     {}\n", counts.schemas_refusing)
      << fmt::format("valid instances accepted    {}/{}\n", counts.valid_accepted, counts.valid)
      << fmt::format("invalid instances refused   {}/{}\n", counts.invalid_refused, counts.invalid)
      << fmt::format("limits reached              {}\n", counts.limited)
      << fmt::format("internal errors             {}\n", counts.internal)
      << fmt::format("whole-vocabulary walks      {}\n", vocabulary_walks)
      << fmt::format("peak memory                 {:.0f} MB\n\n", peak_memory_mb());
  write_aligned(out,
                {{"", "count", "p50", "p90", "p99", "p99.9", "max"},
                 quantile_row("compile, ms", std::move(compile_us), 1e-3),
                 quantile_row("to the first mask, ms", std::move(first_mask_us), 1e-3),
                 quantile_row("a mask, us", std::move(mask_us), 1.0)},
                1);
}

}  // namespace specdec
