#include "core/tokenizers/piece_matcher.h"

#include "core/error.h"

namespace specdec {
namespace {

uint64_t edge(uint32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

void PieceMatcher::add(std::string_view piece, Token id) {
  SPECDEC_CHECK(!piece.empty(), "an empty piece matches everywhere");
  first_.at(static_cast<unsigned char>(piece[0])) = true;
  uint32_t node = 0;
  for (const char byte : piece) {
    const auto [found, is_new] =
        next_.emplace(edge(node, byte), static_cast<uint32_t>(ids_.size()));
    if (is_new) {
      ids_.push_back(-1);
    }
    node = found->second;
  }
  ids_[node] = id;
}

PieceMatcher::Match PieceMatcher::longest(std::string_view text) const {
  Match match;
  if (text.empty() || !first_.at(static_cast<unsigned char>(text[0]))) {
    return match;
  }
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto found = next_.find(edge(node, text[i]));
    if (found == next_.end()) {
      break;
    }
    node = found->second;
    if (ids_[node] >= 0) {
      match = {.bytes = i + 1, .id = ids_[node]};
    }
  }
  return match;
}

}  // namespace specdec
