#include "grammar/engine.h"

#include <chrono>
#include <deque>
#include <utility>

#include "core/error.h"
#include "core/tokenizers/control_pieces.h"
#include "grammar/row_threads.h"

namespace specdec {
namespace {

constexpr uint64_t kAutomatonBytes = uint64_t{1} << 16U;  // of a usual grammar, beside its masks
constexpr std::chrono::milliseconds kWait{2};             // between two looks at the clock

/// Everything that a source says, but for its name: sources with the same key have the same texts.
class SourceKey {
 public:
  explicit SourceKey(const GrammarSource& source) { add(source); }
  std::string text() && { return std::move(text_); }

 private:
  // The bindings name every member: one more is an error here.
  void add(const GrammarSource& source) {
    const auto& [kind, name, text, start, choices, triggers, schema, limits, cuts] = source;
    add(static_cast<uint64_t>(kind));
    add(text);
    add(start);
    add(choices);
    add(triggers);
    add(schema);
    add(limits);
    add(static_cast<uint64_t>(cuts));
  }
  void add(const GrammarSource::Trigger& trigger) {
    const auto& [begin, grammar, end] = trigger;
    add(begin);
    add(grammar);
    add(end);
  }
  void add(const JsonSchemaOptions& options) {
    const auto& [schema_order, any_order_of_names, assert_formats, whitespace, max_whitespace,
                 usual_max_whitespace, escapes, registry] = options;
    add(uint64_t{schema_order});
    add(uint64_t{any_order_of_names});
    add(uint64_t{assert_formats});
    add(whitespace);
    add(uint64_t{max_whitespace});
    add(uint64_t{usual_max_whitespace});
    add(static_cast<uint64_t>(escapes));
    add(registry);
  }
  void add(const GrammarLimits& limits) {
    const auto& [regex_states, mask_bytes, alternatives, steps, seconds, states, bytes, nesting,
                 unrolled, symbols, items] = limits;
    for (const uint64_t limit :
         {regex_states, mask_bytes, alternatives, steps, seconds, states, uint64_t{bytes},
          static_cast<uint64_t>(nesting), unrolled, symbols, items}) {
      add(limit);
    }
  }
  void add(const SchemaRegistry& registry) {
    add(uint64_t{registry.size()});
    registry.for_each([this](const std::string& uri, const std::string& text) {
      add(uri);
      add(text);
    });
  }
  template <class Value>
  void add(const std::vector<Value>& values) {
    add(uint64_t{values.size()});
    for (const Value& value : values) {
      add(value);
    }
  }
  void add(const std::string& text) {
    add(uint64_t{text.size()});
    text_ += text;
  }
  void add(uint64_t number) { text_.append(reinterpret_cast<const char*>(&number), sizeof number); }

  std::string text_;
};

std::unique_lock<std::timed_mutex> wait_for(std::timed_mutex& mutex,
                                            const Interruption& interruption) {
  std::unique_lock lock(mutex, std::defer_lock);
  while (!lock.try_lock_for(kWait)) {
    interruption.look();
  }
  return lock;
}

void check_end_tokens(const std::vector<Token>& end_tokens, int64_t tokens) {
  if (end_tokens.empty()) {
    throw Error("there is no end token, so that no text can end; name at least one");
  }
  for (const Token token : end_tokens) {
    if (token < 0 || token >= tokens) {
      throw Error(
          fmt::format("end token {} is outside the vocabulary of {} tokens", token, tokens));
    }
  }
}

std::shared_ptr<GrammarVocabulary> vocabulary_of(const Tokenizer& tokenizer,
                                                 const EngineOptions& options) {
  const auto end_tokens = options.end_tokens ? *options.end_tokens : answer_end_tokens(tokenizer);
  check_end_tokens(end_tokens, tokenizer.vocab_size());
  return make_grammar_vocabulary(tokenizer, end_tokens, options.vocabulary, options.cache);
}

std::shared_ptr<GrammarVocabulary> vocabulary_of(const std::vector<std::string>& tokens,
                                                 const EngineOptions& options) {
  const auto end_tokens = options.end_tokens.value_or(std::vector<Token>());
  check_end_tokens(end_tokens, std::ssize(tokens));
  return std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(tokens.begin(), tokens.end()), end_tokens, options.vocabulary,
      options.cache);
}

}  // namespace

GrammarEngine::GrammarEngine(const std::shared_ptr<const Tokenizer>& tokenizer,
                             const EngineOptions& options)
    : GrammarEngine(tokenizer, vocabulary_of(*tokenizer, options), options) {}

GrammarEngine::GrammarEngine(const std::vector<std::string>& tokens, const EngineOptions& options)
    : GrammarEngine(nullptr, vocabulary_of(tokens, options), options) {}

GrammarEngine::GrammarEngine(std::shared_ptr<const Tokenizer> tokenizer,
                             std::shared_ptr<GrammarVocabulary> vocabulary,
                             const EngineOptions& options)
    : tokenizer_(std::move(tokenizer)),
      vocabulary_(std::move(vocabulary)),
      vocab_size_(options.vocab_size > 0 ? options.vocab_size : vocabulary_->vocab_size()),
      cache_(options.max_cache_bytes),
      threads_(std::make_unique<RowThreads>(options.threads)) {
  if (vocab_size_ < vocabulary_->vocab_size()) {
    throw Error(
        fmt::format("vocab_size is {}, but the tokenizer has {} tokens; give the width of "
                    "the model's logits",
                    vocab_size_, vocabulary_->vocab_size()));
  }
}

GrammarEngine::~GrammarEngine() = default;

std::shared_ptr<const CompiledGrammar> GrammarEngine::compile(const GrammarSource& source,
                                                              const CompileControl& control) {
  if (!(control.seconds >= 0)) {
    throw Error(
        fmt::format("{} s to compile in; give a number that is not negative", control.seconds));
  }
  const Interruption interruption(control.seconds, control.cancelled);
  interruption.look();
  const std::string key = SourceKey(source).text();
  if (auto grammar = cached(key)) {
    return grammar;
  }
  const auto lock = wait_for(compiling_, interruption);
  if (auto grammar = cached(key)) {  // another thread has compiled it in the meantime
    return grammar;
  }
  if (source.cuts == Cuts::kCanonical) {
    if (tokenizer_ == nullptr) {
      throw Error("a canonical grammar needs a tokenizer, not only the bytes of its tokens");
    }
    vocabulary_->learn_cuts(*tokenizer_);
  }
  auto grammar = compile_grammar(vocabulary_, source);
  keep(key, grammar);
  return grammar;
}

GrammarEngine::Grammar GrammarEngine::cached(const std::string& key) {
  Grammar grammar;
  {
    const std::lock_guard lock(cache_mutex_);
    const Kept* kept = cache_.find(key);
    grammar = kept == nullptr ? nullptr : kept->grammar;
  }
  return grammar != nullptr && !grammar->is_used_up() ? grammar : nullptr;
}

void GrammarEngine::keep(const std::string& key, const Grammar& grammar) {
  const auto bytes = [](const Kept& kept) {
    return kept.key_bytes + kAutomatonBytes + kept.grammar->mask_bytes();
  };
  const Kept kept = {grammar, 2 * key.size()};
  const std::lock_guard lock(cache_mutex_);
  cache_.recount(bytes);
  if (Kept* old = cache_.find(key)) {
    *old = kept;
  } else {
    cache_.add(key, kept, bytes(kept));
  }
}

void GrammarEngine::clear_cache() {
  const std::lock_guard lock(cache_mutex_);
  cache_ = BoundedCache<std::string, Kept>(cache_.max_bytes());
}

uint64_t GrammarEngine::cached_bytes() const {
  const std::lock_guard lock(cache_mutex_);
  return cache_.bytes();
}

size_t GrammarEngine::cached_grammars() const {
  const std::lock_guard lock(cache_mutex_);
  return cache_.size();
}

std::vector<int64_t> GrammarEngine::checked_rows(std::span<const CheckedMatcher* const> matchers,
                                                 std::span<const int64_t> rows,
                                                 size_t bitmask_words) const {
  const auto width = static_cast<size_t>(words());
  if (bitmask_words % width != 0) {
    throw Error(fmt::format("a bitmask of {} words; it must have {} a row for {} tokens",
                            bitmask_words, width, vocab_size_));
  }
  if (!rows.empty() && rows.size() != matchers.size()) {
    throw Error(fmt::format("{} matchers for {} rows", matchers.size(), rows.size()));
  }
  std::vector<bool> taken(bitmask_words / width, false);
  std::vector<int64_t> checked;
  for (size_t i = 0; i < matchers.size(); ++i) {
    const int64_t row = rows.empty() ? static_cast<int64_t>(i) : rows[i];
    if (row < 0 || row >= std::ssize(taken) || taken[static_cast<size_t>(row)]) {
      throw Error(fmt::format("matcher {} shall fill row {}; the bitmask has {} rows, each for one",
                              i, row, taken.size()));
    }
    if (matchers[i]->engine_.get() != this) {
      throw Error(fmt::format("matcher {} belongs to another engine", i));
    }
    taken[static_cast<size_t>(row)] = true;
    checked.push_back(row);
  }
  return checked;
}

void GrammarEngine::fill_batch(std::span<const CheckedMatcher* const> matchers,
                               std::span<int32_t> bitmask, std::span<const int64_t> rows) const {
  const std::vector<int64_t> places = checked_rows(matchers, rows, bitmask.size());
  std::deque<CheckedMatcher::Use> uses;
  for (size_t i = 0; i < matchers.size(); ++i) {
    uses.emplace_back(*matchers[i]);
    if (matchers[i]->place_.is_ended()) {
      throw Error(fmt::format("matcher {}: the text has ended with an end token; leave it out", i));
    }
  }
  const auto width = static_cast<size_t>(words());
  threads_->run(std::ssize(places), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    matchers[at]->write(bitmask.subspan(static_cast<size_t>(places[at]) * width, width));
  });
}

}  // namespace specdec
