#include "grammar/masks/unspelled.h"

#include <algorithm>
#include <vector>

namespace specdec {
namespace {

/// Reads the UTF-8 of all characters, those that begin alike at once.
class UnspelledSearch {
 public:
  explicit UnspelledSearch(const TokenTrie& trie) : trie_(trie) {
    for (uint32_t byte = 0x80; byte < 0xC0; ++byte) {
      has_continuations_ = has_continuations_ && is_boundary(after({0}, byte));
    }
  }

  CodePoints run() {
    for (uint32_t byte = 0x20; byte < 0x80; ++byte) {
      if (byte != '"' && byte != '\\') {
        look(after({0}, byte), {byte, 0, 0x20});
      }
    }
    for (uint32_t byte = 0xC2; byte < 0xE0; ++byte) {
      look(after({0}, byte), {byte & 0x1F, 1, 0x80});
    }
    for (uint32_t byte = 0xE0; byte < 0xF0; ++byte) {
      look(after({0}, byte), {byte & 0x0F, 2, 0x800});
    }
    for (uint32_t byte = 0xF0; byte < 0xF5; ++byte) {
      look(after({0}, byte), {byte & 0x07, 3, 0x10000});
    }
    return CodePoints(found_);
  }

 private:
  using Node = TokenTrie::Node;
  /// Where the bytes so far may end, sorted: within a token, or at its end, which is node 0.
  using Places = std::vector<Node>;
  /// The first bytes of a character.
  struct Prefix {
    uint32_t value = 0;
    uint32_t more = 0;   ///< bytes to come
    uint32_t first = 0;  ///< of the characters with as many bytes
  };

  static bool is_boundary(const Places& places) { return !places.empty() && places[0] == 0; }

  Places after(const Places& places, uint32_t byte) const {
    Places result;
    for (const Node place : places) {
      const Node node = trie_.child(place, static_cast<uint8_t>(byte));
      if (node != TokenTrie::kNone) {
        result.push_back(node);
        if (!trie_.tokens(node).empty()) {
          result.push_back(0);
        }
      }
    }
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }

  void look(const Places& places, const Prefix& prefix) {
    const bool is_spelled = is_boundary(places) && (prefix.more == 0 || has_continuations_);
    if (is_spelled) {
      return;
    }
    if (places.empty() || prefix.more == 0) {
      const uint32_t first = prefix.value << 6 * prefix.more;
      const uint32_t last = first | ((1U << 6 * prefix.more) - 1);
      if (last >= prefix.first && first <= CodePoints::kLast) {
        found_.push_back(
            {std::max(first, prefix.first), std::min<uint32_t>(last, CodePoints::kLast)});
      }
      return;
    }
    for (uint32_t byte = 0x80; byte < 0xC0; ++byte) {
      look(after(places, byte), {prefix.value << 6 | (byte & 0x3F), prefix.more - 1, prefix.first});
    }
  }

  const TokenTrie& trie_;
  bool has_continuations_ = true;  ///< each byte within a character is a token
  std::vector<CodePoints::Range> found_;
};

}  // namespace

CodePoints find_unspelled(const TokenTrie& trie) {
  return trie.size() == 1 ? CodePoints() : UnspelledSearch(trie).run();
}

}  // namespace specdec
