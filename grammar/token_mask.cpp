#include "grammar/token_mask.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/error.h"

namespace specdec {
namespace {

template <class Logit>
void apply(const TokenMask& mask, std::span<Logit> logits) {
  SPECDEC_CHECK(static_cast<int64_t>(logits.size()) >= mask.vocab_size(),
                "{} logits for a mask of {} tokens", logits.size(), mask.vocab_size());
  constexpr Logit kForbidden = -std::numeric_limits<Logit>::infinity();
  const TokenMask::Content& content = mask.content();
  std::vector<Logit> kept;
  kept.reserve(content.added.size());
  for (const Token token : content.added) {
    kept.push_back(logits[static_cast<size_t>(token)]);
  }
  if (content.base == nullptr) {
    std::fill(logits.begin(), logits.end(), kForbidden);
  } else {
    const auto vocab = static_cast<size_t>(mask.vocab_size());
    for (size_t word = 0; word * 32 < vocab; ++word) {
      const uint32_t bits = (*content.base)[word];
      const size_t end = std::min(vocab, word * 32 + 32);
      for (size_t i = word * 32; bits != ~0U && i < end; ++i) {
        logits[i] = (bits >> (i % 32) & 1) != 0 ? logits[i] : kForbidden;
      }
    }
    std::fill(logits.begin() + static_cast<int64_t>(vocab), logits.end(), kForbidden);
  }
  for (const Token token : content.removed) {
    logits[static_cast<size_t>(token)] = kForbidden;
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    logits[static_cast<size_t>(content.added[i])] = kept[i];
  }
}

}  // namespace

bool TokenMask::allows(Token token) const {
  if (token < 0 || token >= vocab_size_) {
    return false;
  }
  if (std::binary_search(content_->added.begin(), content_->added.end(), token)) {
    return true;
  }
  return content_->base != nullptr && has_token(*content_->base, token) &&
         !std::binary_search(content_->removed.begin(), content_->removed.end(), token);
}

int64_t TokenMask::count() const {
  int64_t total = std::ssize(content_->added) - std::ssize(content_->removed);
  if (content_->base != nullptr) {
    for (const uint32_t word : *content_->base) {
      total += std::popcount(word);
    }
  }
  return total;
}

std::vector<Token> TokenMask::tokens() const {
  MaskWords words(static_cast<size_t>((vocab_size_ + 31) / 32));
  write(words);
  std::vector<Token> result;
  for (size_t i = 0; i < words.size(); ++i) {
    for (uint32_t rest = words[i]; rest != 0; rest &= rest - 1) {
      result.push_back(static_cast<Token>(i * 32) + std::countr_zero(rest));
    }
  }
  return result;
}

Token TokenMask::single() const {
  if (content_->base == nullptr) {
    return content_->added.size() == 1 ? content_->added.front() : -1;
  }
  return count() == 1 ? tokens().front() : -1;
}

void TokenMask::write(std::span<uint32_t> words) const {
  SPECDEC_CHECK(words.size() == static_cast<size_t>((vocab_size_ + 31) / 32),
                "{} words for a mask of {} tokens", words.size(), vocab_size_);
  if (content_->base == nullptr) {
    std::fill(words.begin(), words.end(), 0);
  } else {
    std::copy(content_->base->begin(), content_->base->end(), words.begin());
  }
  for (const Token token : content_->removed) {
    words[static_cast<size_t>(token) / 32] &= ~(1U << (token % 32));
  }
  for (const Token token : content_->added) {
    words[static_cast<size_t>(token) / 32] |= 1U << (token % 32);
  }
}

void apply_mask(const TokenMask& mask, std::span<float> logits) { apply(mask, logits); }
void apply_mask(const TokenMask& mask, std::span<double> logits) { apply(mask, logits); }

}  // namespace specdec
