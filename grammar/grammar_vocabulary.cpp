#include "grammar/grammar_vocabulary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <utility>

#include "core/edit_distance.h"
#include "core/error.h"
#include "core/tokenizers/control_pieces.h"
#include "grammar/canonical/canonical_cuts.h"
#include "grammar/json/json_schema.h"

namespace specdec {
namespace {

/// Version of the cache files: to be raised when what is written changes, or how it is found: other
/// versions' files are not read.
constexpr uint64_t kCacheVersion = 3;
constexpr CacheKey kTrie = {.kind = 1};
constexpr size_t kShownNames = 5;

/// N of "<[N]>".
std::optional<Token> parse_token_id(std::string_view name) {
  if (!name.starts_with("<[") || !name.ends_with("]>")) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(2, name.size() - 4);
  Token id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  return is_number ? std::optional(id) : std::nullopt;
}

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
  strings().walk(0, RegexStore::kAll,
                 JsonSchemaOptions().escapes);  // most walks differ little from it
  was_cached_ = cache_file_ != nullptr && made() == 0;
}

GrammarVocabulary::~GrammarVocabulary() {
  try {
    save();
  } catch (...) {  // it is made again next time
  }
}

void GrammarVocabulary::name_control_tokens(std::map<std::string, Token, std::less<>> names) {
  control_tokens_ = std::move(names);
}

std::optional<Token> GrammarVocabulary::find_token(std::string_view name) const {
  if (const auto id = parse_token_id(name)) {
    return *id >= 0 && *id < vocab_size() ? id : std::nullopt;
  }
  if (const auto known = control_tokens_.find(name); known != control_tokens_.end()) {
    return known->second;
  }
  const TokenTrie::Node node = name.empty() ? TokenTrie::kNone : trie_.find(0, name);
  const auto tokens = node == TokenTrie::kNone ? std::span<const Token>() : trie_.tokens(node);
  return tokens.empty() ? std::nullopt : std::optional(tokens.back());  // byte pieces come first
}

Token GrammarVocabulary::require_token(std::string_view name) const {
  if (const auto token = find_token(name)) {
    return *token;
  }
  std::vector<std::pair<size_t, std::string>> near;
  const auto look_at = [&](std::string_view other) {
    const size_t distance = edit_distance(name, other);
    if (distance <= std::max<size_t>(2, name.size() / 3)) {
      near.emplace_back(distance, other);
    }
  };
  for (const auto& [other, token] : control_tokens_) {
    look_at(other);
  }
  for (Token token = 0; token < vocab_size(); ++token) {
    const std::string_view other = bytes(token);
    if (!other.empty() && (other.front() == '<' || other.front() == '[')) {
      look_at(other);
    }
  }
  std::sort(near.begin(), near.end());
  near.resize(std::min(near.size(), kShownNames));
  std::vector<std::string> names;
  for (const auto& [distance, other] : near) {
    names.push_back(other);
  }
  throw GrammarError(
      fmt::format("the vocabulary of {} tokens has no token '{}'; {}", vocab_size(), name,
                  names.empty() ? fmt::format("give its name as the tokenizer spells it, or <[ID]> "
                                              "with an ID from 0 to {}",
                                              vocab_size() - 1)
                                : fmt::format("near are: {}", fmt::join(names, ", "))));
}

std::string GrammarVocabulary::token_name(Token token) const {
  if (!bytes(token).empty()) {
    return std::string(bytes(token));
  }
  const auto known =
      std::ranges::find(control_tokens_, token, [](const auto& entry) { return entry.second; });
  return known == control_tokens_.end() ? fmt::format("<[{}]>", token) : known->first;
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
  const std::lock_guard lock(saving_);
  const uint64_t made_before = made();
  if (cache_path_.empty() || saved_ == made_before) {
    return;
  }
  const CacheFile old(cache_path_, fingerprint_);  // others may have written since
  CacheFileWriter file(cache_path_, fingerprint_);
  trie_.write(file, kTrie);
  walks_.write(file, old, regexes().key(RegexStore::kAll), cache_.max_walk_bytes);
  file.commit();
  saved_ = made_before;
}

std::shared_ptr<GrammarLanguages> GrammarVocabulary::languages() {
  const std::lock_guard lock(mutex_);
  return languages_;
}

CanonicalCuts* GrammarVocabulary::cuts() {
  const std::lock_guard lock(mutex_);
  return cuts_.get();
}

std::shared_ptr<GrammarLanguages> GrammarVocabulary::begin_grammar() {
  const std::lock_guard lock(mutex_);
  if (languages_->bytes() > limits_.max_language_bytes ||
      languages_->shared.regexes.is_half_full()) {
    languages_ = std::make_shared<GrammarLanguages>(limits_.max_regex_states, walks_);
  }
  return languages_;
}

std::vector<GrammarVocabulary::CacheSize> GrammarVocabulary::cache_sizes() {
  const uint64_t half = limits_.max_string_mask_bytes / 2;
  return {{"languages", languages()->bytes(), limits_.max_language_bytes},
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
  std::map<std::string, Token, std::less<>> names;
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::string_view piece = tokenizer.piece(token);
    bytes.push_back(is_control_piece(piece) ? "" : tokenizer.token_bytes(token));
    if (bytes.back().empty() && !piece.empty()) {
      names.emplace(piece, token);
    }
  }
  auto vocabulary = std::make_shared<GrammarVocabulary>(
      bytes, end_tokens ? std::move(*end_tokens) : answer_end_tokens(tokenizer), limits, cache);
  vocabulary->name_control_tokens(std::move(names));
  return vocabulary;
}

}  // namespace specdec
