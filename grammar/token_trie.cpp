#include "grammar/token_trie.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace specdec {

TokenTrie::TokenTrie(const std::vector<std::string_view>& bytes)
    : vocab_size_(static_cast<int64_t>(bytes.size())), root_children_(256, kNone) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!bytes[i].empty()) {
      tokens_.push_back(static_cast<Token>(i));
    }
  }
  const auto text = [&](Token token) { return bytes[static_cast<size_t>(token)]; };
  std::sort(tokens_.begin(), tokens_.end(), [&](Token a, Token b) {
    const int order = text(a).compare(text(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<Node> open = {0};  // the path to the newest node
  const auto add = [&](uint8_t byte) {
    bytes_.push_back(byte);
    depths_.push_back(static_cast<uint32_t>(open.size()) - (bytes_.size() == 1 ? 1 : 0));
    ends_.push_back(0);
  };
  add(0);
  first_token_.push_back(0);
  std::string_view before;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view now = text(tokens_[i]);
    const auto [left, right] = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
    const auto shared = static_cast<size_t>(right - now.begin());
    while (open.size() > shared + 1) {
      ends_[open.back()] = size();
      open.pop_back();
    }
    for (size_t at = shared; at < now.size(); ++at) {
      add(static_cast<uint8_t>(now[at]));
      first_token_.push_back(static_cast<uint32_t>(i));
      open.push_back(size() - 1);
      if (at == 0) {
        root_children_[static_cast<uint8_t>(now[0])] = size() - 1;
      }
    }
    before = now;
  }
  for (const Node node : open) {
    ends_[node] = size();
  }
  first_token_.push_back(static_cast<uint32_t>(tokens_.size()));
}

TokenTrie::Node TokenTrie::child(Node node, uint8_t byte) const {
  if (node == 0) {
    return root_children_[byte];
  }
  for (Node child = node + 1; child < ends_[node]; child = ends_[child]) {
    if (bytes_[child] >= byte) {
      return bytes_[child] == byte ? child : kNone;
    }
  }
  return kNone;
}

TokenTrie::Node TokenTrie::find(Node from, std::string_view text) const {
  for (const char c : text) {
    from = child(from, static_cast<uint8_t>(c));
    if (from == kNone) {
      return kNone;
    }
  }
  return from;
}

std::span<const Token> TokenTrie::tokens(Node node) const {
  const uint32_t first = first_token_[node];
  // A node's own tokens come before those of its first child.
  const uint32_t last = first_token_[node + 1];
  return {tokens_.data() + first, last - first};
}

std::span<const Token> TokenTrie::tokens_below(Node node) const {
  const uint32_t first = first_token_[node];
  return {tokens_.data() + first, first_token_[ends_[node]] - first};
}

}  // namespace specdec
