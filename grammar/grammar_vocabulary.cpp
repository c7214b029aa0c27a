#include "grammar/grammar_vocabulary.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>

#include "core/control_pieces.h"
#include "grammar/canonical/canonical_cuts.h"

namespace specdec {
namespace {

/// To be raised when what is written changes, or how it is found: other versions' files are not
/// read.
constexpr uint64_t kCacheVersion = 2;
constexpr CacheKey kTrie = {.kind = 1};

}  // namespace

GrammarVocabulary::GrammarVocabulary(const std::vector<std::string_view>& bytes,
                                     std::vector<Token> end_tokens,
                                     const GrammarVocabularyLimits& limits,
                                     const GrammarCache& cache)
    : tokens_(bytes, std::move(end_tokens)),
      cache_(cache),
      cache_file_(open_cache()),
      trie_(read_or_make_trie(bytes)),
      limits_(limits),
      walks_(trie_, limits.max_string_mask_bytes, cache_file_.get()),
      languages_(std::make_shared<GrammarLanguages>(limits.max_regex_states, walks_)) {
  strings().walk(0, RegexStore::kAll, EscapeStyle::kAny);  // what most walks differ little from
  was_cached_ = cache_file_ != nullptr && made() == 0;
}

GrammarVocabulary::~GrammarVocabulary() {
  try {
    save();
  } catch (...) {  // it is made again next time
  }
}

std::unique_ptr<CacheFile> GrammarVocabulary::open_cache() {
  if (cache_.folder.empty() || tokens_.size() < cache_.min_tokens) {
    return nullptr;
  }
  fingerprint_ = WideHash()
                     .add(kCacheVersion)
                     .add(std::as_bytes(std::span(tokens_.text())))
                     .add(std::as_bytes(tokens_.ends()))
                     .value();
  cache_path_ =
      cache_.folder / fmt::format("{:016x}{:016x}.vocabulary", fingerprint_[0], fingerprint_[1]);
  return std::make_unique<CacheFile>(cache_path_, fingerprint_);
}

TokenTrie GrammarVocabulary::read_or_make_trie(const std::vector<std::string_view>& bytes) {
  auto trie = cache_file_ == nullptr ? std::nullopt : TokenTrie::read(*cache_file_, kTrie);
  trie_made_ = trie ? 0 : 1;
  return trie ? std::move(*trie) : TokenTrie(bytes);
}

void GrammarVocabulary::save() {
  const std::lock_guard lock(mutex_);
  if (cache_path_.empty() || saved_ == made()) {
    return;
  }
  const CacheFile old(cache_path_, fingerprint_);  // others may have written since
  CacheFileWriter file(cache_path_, fingerprint_);
  trie_.write(file, kTrie);
  walks_.write(file, old, regexes().key(RegexStore::kAll), cache_.max_walk_bytes);
  file.commit();
  saved_ = made();
}

std::shared_ptr<GrammarLanguages> GrammarVocabulary::begin_grammar() {
  if (languages_->bytes() > limits_.max_language_bytes || regexes().is_half_full()) {
    languages_ = std::make_shared<GrammarLanguages>(limits_.max_regex_states, walks_);
  }
  return languages_;
}

std::vector<GrammarVocabulary::CacheSize> GrammarVocabulary::cache_sizes() {
  const std::lock_guard lock(mutex_);
  const uint64_t half = limits_.max_string_mask_bytes / 2;
  return {{"languages", languages_->bytes(), limits_.max_language_bytes},
          {"walks", walks_.walk_bytes(), half},
          {"bits", walks_.bits_bytes(), half}};
}

void GrammarVocabulary::learn_cuts(const Tokenizer& tokenizer) {
  const std::lock_guard lock(mutex_);
  if (cuts_ == nullptr) {
    cuts_ = std::make_unique<CanonicalCuts>(tokenizer, trie_);
  }
}

std::shared_ptr<GrammarVocabulary> make_grammar_vocabulary(
    const Tokenizer& tokenizer, std::optional<std::vector<Token>> end_tokens,
    const GrammarVocabularyLimits& limits, const GrammarCache& cache) {
  std::vector<std::string_view> bytes;
  bytes.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    bytes.push_back(is_control_piece(tokenizer.piece(token)) ? "" : tokenizer.token_bytes(token));
  }
  return std::make_shared<GrammarVocabulary>(
      bytes, end_tokens ? std::move(*end_tokens) : answer_end_tokens(tokenizer), limits, cache);
}

}  // namespace specdec
