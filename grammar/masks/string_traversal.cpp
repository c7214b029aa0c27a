#include "grammar/masks/string_traversal.h"

#include <algorithm>

namespace specdec {
namespace {

constexpr uint32_t kBits = ~uint32_t{0};  ///< in front of the words of a walk with bits

}  // namespace

void StringTraversal::sort_exits() {
  std::sort(exits.begin(), exits.end(), [](const Exit& a, const Exit& b) {
    return a.remainder != b.remainder ? a.remainder < b.remainder : a.token < b.token;
  });
}

uint64_t StringTraversal::bytes() const {
  const size_t of_bits = bits == nullptr ? 0 : bits->size() * sizeof(uint32_t);
  return sizeof *this + of_bits + closing.size() * sizeof(uint32_t) +
         inside.size() * sizeof(Inside) + exits.size() * sizeof(Exit);
}

/// Layout: the number of tokens inside and these, then those that close; with bits kBits, the bits,
/// and those of the tokens that close.
std::vector<uint32_t> StringTraversal::to_words() const {
  std::vector<uint32_t> words;
  if (bits != nullptr) {
    words.push_back(kBits);
    words.insert(words.end(), bits->begin(), bits->end());
    words.insert(words.end(), closing.begin(), closing.end());
    return words;
  }
  words.push_back(static_cast<uint32_t>(inside.size()));
  for (const Inside& one : inside) {
    words.insert(words.end(), {static_cast<uint32_t>(one.token), one.length});
  }
  for (const Exit& exit : exits) {
    words.insert(words.end(), {exit.remainder, static_cast<uint32_t>(exit.token), exit.length});
  }
  return words;
}

std::unique_ptr<StringTraversal> StringTraversal::from_words(std::span<const uint32_t> words,
                                                             size_t mask_words,
                                                             size_t closing_tokens) {
  if (words.empty()) {
    return nullptr;
  }
  auto walk = std::make_unique<StringTraversal>();
  const uint32_t count = words.front();
  words = words.subspan(1);
  if (count == kBits) {
    if (words.size() != mask_words + (closing_tokens + 31) / 32) {
      return nullptr;
    }
    const auto middle = words.begin() + static_cast<ptrdiff_t>(mask_words);
    walk->bits = std::make_shared<MaskWords>(words.begin(), middle);
    walk->closing.assign(middle, words.end());
    return walk;
  }
  if (words.size() / 2 < count || (words.size() - 2 * size_t{count}) % 3 != 0) {
    return nullptr;
  }
  size_t at = 0;
  for (; at < 2 * size_t{count}; at += 2) {
    walk->inside.push_back({static_cast<Token>(words[at]), words[at + 1]});
  }
  for (; at < words.size(); at += 3) {
    walk->exits.push_back({words[at], static_cast<Token>(words[at + 1]), words[at + 2]});
  }
  return walk;
}

}  // namespace specdec
