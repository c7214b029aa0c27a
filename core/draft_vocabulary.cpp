#include "core/draft_vocabulary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.h"

namespace specdec {

DraftVocabulary::DraftVocabulary(std::vector<Token> tokens, int64_t vocab_size, at::Device device)
    : tokens_(std::move(tokens)),
      vocab_size_(vocab_size),
      ids_(at::tensor(c10::ArrayRef<Token>(tokens_), at::kInt).to(device)) {
  SPECDEC_CHECK(!tokens_.empty() && tokens_.front() >= 0 && tokens_.back() < vocab_size,
                "a draft vocabulary of {} tokens leaves the target's {}", tokens_.size(),
                vocab_size);
  SPECDEC_CHECK(
      std::adjacent_find(tokens_.begin(), tokens_.end(), std::greater_equal<>()) == tokens_.end(),
      "the tokens of a draft vocabulary ascend");
}

std::vector<Token> DraftVocabulary::columns_of(TokenSpan history) const {
  std::vector<Token> columns;
  for (const Token token : history) {
    const auto place = std::lower_bound(tokens_.begin(), tokens_.end(), token);
    if (place != tokens_.end() && *place == token) {
      columns.push_back(static_cast<Token>(place - tokens_.begin()));
    }
  }
  return columns;
}

AllowedTokens DraftVocabulary::columns_of(const AllowedTokens& allowed) const {
  auto words = std::make_shared<std::vector<uint32_t>>((tokens_.size() + 31) / 32);
  for (size_t column = 0; column < tokens_.size(); ++column) {
    const auto token = static_cast<size_t>(tokens_[column]);
    const uint32_t word = token / 32 < allowed->size() ? (*allowed)[token / 32] : 0;
    (*words)[column / 32] |= (word >> (token % 32) & 1U) << (column % 32);
  }
  return words;
}

LogitBias DraftVocabulary::columns_of(const LogitBias& bias) const {
  LogitBias columns;
  for (const auto& [token, summand] : bias) {
    for (const Token column : columns_of(TokenSpan(&token, 1))) {
      columns.emplace(column, summand);
    }
  }
  return columns;
}

TokenProbs DraftVocabulary::probs(LogitRow logits, TokenSpan history, const SamplingParams& params,
                                  const AllowedTokens& allowed) const {
  const AllowedTokens columns = allowed == nullptr ? nullptr : columns_of(allowed);
  SamplingParams own = params;
  own.logit_bias = columns_of(params.logit_bias);
  if (forbids_all(own.logit_bias, columns, this->columns())) {
    return {};
  }
  const TokenProbs found = token_probs(std::move(logits), columns_of(history), own, columns);
  SPECDEC_CHECK(found.vocab_size() == this->columns(), "{} logits of a draft vocabulary of {}",
                found.vocab_size(), this->columns());
  return found.renamed(tokens_, vocab_size_);
}

at::Tensor DraftVocabulary::widened(const at::Tensor& logits, double other) const {
  return at::full({logits.size(0), vocab_size_}, other, logits.options())
      .index_copy_(1, ids_.to(logits.device(), at::kLong), logits);
}

}  // namespace specdec
