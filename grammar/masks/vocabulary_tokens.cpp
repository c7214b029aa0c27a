#include "grammar/masks/vocabulary_tokens.h"

#include <algorithm>
#include <utility>

namespace specdec {
namespace {

std::string joined(const std::vector<std::string_view>& texts) {
  size_t size = 0;
  for (const std::string_view text : texts) {
    size += text.size();
  }
  std::string all;
  all.reserve(size);
  for (const std::string_view text : texts) {
    all += text;
  }
  return all;
}

std::vector<uint32_t> ends_of(const std::vector<std::string_view>& texts) {
  std::vector<uint32_t> ends = {0};
  ends.reserve(texts.size() + 1);
  for (const std::string_view text : texts) {
    ends.push_back(ends.back() + static_cast<uint32_t>(text.size()));
  }
  return ends;
}

}  // namespace

VocabularyTokens::VocabularyTokens(const std::vector<std::string_view>& bytes,
                                   std::vector<Token> end_tokens)
    : text_(joined(bytes)), ends_(ends_of(bytes)), end_tokens_(std::move(end_tokens)) {
  std::sort(end_tokens_.begin(), end_tokens_.end());
}

}  // namespace specdec
