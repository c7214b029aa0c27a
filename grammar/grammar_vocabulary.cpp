#include "grammar/grammar_vocabulary.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "grammar/canonical_cuts.h"

namespace specdec {
namespace {

/// Gemma's pieces that stand for no text of a model's answer.
bool steers(std::string_view piece) {
  static constexpr std::array<std::string_view, 10> kPrefixes = {
      "<start_of_",         "<end_of_",     "<unused", "<mask>",     "<image_soft_token>",
      "<audio_soft_token>", "[multimodal]", "[@BOS@]", "[toxicity=", "<2mass>"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return piece.starts_with(prefix); });
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(std::vector<std::string> bytes, std::vector<Token> end_tokens,
                                     const GrammarVocabularyLimits& limits)
    : bytes_(std::move(bytes)),
      end_tokens_(std::move(end_tokens)),
      trie_({bytes_.begin(), bytes_.end()}),
      regexes_(limits.max_regex_states),
      strings_(trie_, regexes_, limits.max_string_mask_bytes) {
  std::sort(end_tokens_.begin(), end_tokens_.end());
  strings_.walk(0, RegexStore::kAll, EscapeStyle::kAny);  // what most walks differ little from
}

GrammarVocabulary::~GrammarVocabulary() = default;

void GrammarVocabulary::learn_cuts(const Tokenizer& tokenizer) {
  const std::lock_guard lock(mutex_);
  if (cuts_ == nullptr) {
    cuts_ = std::make_unique<CanonicalCuts>(tokenizer, trie_);
  }
}

std::shared_ptr<GrammarVocabulary> make_grammar_vocabulary(
    const Tokenizer& tokenizer, std::optional<std::vector<Token>> end_tokens,
    const GrammarVocabularyLimits& limits) {
  std::vector<std::string> bytes;
  bytes.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    bytes.emplace_back(steers(tokenizer.piece(token)) ? "" : tokenizer.token_bytes(token));
  }
  if (!end_tokens) {
    end_tokens.emplace();
    for (const auto& token : {tokenizer.eos(), tokenizer.find_piece("<end_of_turn>")}) {
      if (token) {
        end_tokens->push_back(*token);
      }
    }
  }
  return std::make_shared<GrammarVocabulary>(std::move(bytes), std::move(*end_tokens), limits);
}

}  // namespace specdec
