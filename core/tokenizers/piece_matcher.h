#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/types.h"

namespace specdec {

/// Finds the pieces of a set in a text: leftmost first, the longest of those that begin there.
class PieceMatcher {
 public:
  struct Match {
    size_t bytes = 0;  ///< 0 = no piece begins here
    Token id = 0;
  };

  /// The piece must not be empty; added twice, the later id counts.
  void add(std::string_view piece, Token id);
  /// The longest piece that `text` begins with.
  Match longest(std::string_view text) const;

 private:
  std::array<bool, 256> first_{};  // bytes that begin a piece: most positions end here
  std::unordered_map<uint64_t, uint32_t> next_;  // node << 8 | byte -> node of the trie
  std::vector<Token> ids_ = {-1};                // of the piece that ends at a node, or -1
};

/// Appends the ids of the matcher's pieces in a text and calls `between` with what lies between
/// them. `matcher` has PieceMatcher's longest().
template <class Matcher, class Between>
void split_pieces(std::string_view text, Matcher&& matcher, std::vector<Token>& tokens,
                  const Between& between) {
  size_t begin = 0;
  size_t at = 0;
  while (at < text.size()) {
    const PieceMatcher::Match match = matcher.longest(text.substr(at));
    if (match.bytes == 0) {
      ++at;
      continue;
    }
    if (at > begin) {
      between(text.substr(begin, at - begin));
    }
    tokens.push_back(match.id);
    at += match.bytes;
    begin = at;
  }
  if (at > begin) {
    between(text.substr(begin));
  }
}

}  // namespace specdec
