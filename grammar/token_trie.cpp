#include "grammar/token_trie.h"

#include <algorithm>
#include <bit>

#include "core/error.h"

namespace specdec {
namespace {

constexpr size_t kPrefix = 8;

/// A token's text, most often told by its first bytes alone: the others lie elsewhere.
struct Text {
  uint64_t prefix = 0;  ///< the first bytes as a number, which sorts as they do but for equals
  Token token = 0;
  uint32_t length = 0;
};

/// Tokens that stand for something, by their bytes, equals by their ids.
std::vector<Text> sorted_texts(const std::vector<std::string_view>& bytes) {
  std::vector<Text> texts;
  texts.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    uint64_t prefix = 0;
    for (size_t at = 0; at < kPrefix; ++at) {
      prefix = prefix << 8U | (at < bytes[i].size() ? static_cast<uint8_t>(bytes[i][at]) : 0U);
    }
    if (!bytes[i].empty()) {
      texts.push_back({prefix, static_cast<Token>(i), static_cast<uint32_t>(bytes[i].size())});
    }
  }
  std::sort(texts.begin(), texts.end(), [&](const Text& a, const Text& b) {
    if (a.prefix != b.prefix) {
      return a.prefix < b.prefix;
    }
    if (a.length > kPrefix && b.length > kPrefix) {
      const int order =
          bytes[static_cast<size_t>(a.token)].compare(bytes[static_cast<size_t>(b.token)]);
      return order != 0 ? order < 0 : a.token < b.token;
    }
    return a.length != b.length ? a.length < b.length : a.token < b.token;
  });
  return texts;
}

/// Bytes at which two texts begin alike.
size_t shared_bytes(const Text& a, const Text& b, const std::vector<std::string_view>& bytes) {
  const size_t shorter = std::min(a.length, b.length);
  const auto same = static_cast<size_t>(std::countl_zero(a.prefix ^ b.prefix)) / 8;
  if (same < kPrefix || shorter <= kPrefix) {
    return std::min(same, shorter);
  }
  const std::string_view left = bytes[static_cast<size_t>(a.token)];
  const std::string_view right = bytes[static_cast<size_t>(b.token)];
  const auto at = std::mismatch(left.begin(), left.end(), right.begin(), right.end()).first;
  return static_cast<size_t>(at - left.begin());
}

}  // namespace

TokenTrie::TokenTrie(const std::vector<std::string_view>& bytes)
    : vocab_size_(static_cast<int64_t>(bytes.size())), root_children_(256, kNone) {
  std::vector<Node> open = {0};  // the path to the newest node
  const auto add = [&](uint8_t byte) {
    bytes_.push_back(byte);
    depths_.push_back(static_cast<uint32_t>(open.size()) - (bytes_.size() == 1 ? 1 : 0));
    ends_.push_back(0);
    first_token_.push_back(static_cast<uint32_t>(tokens_.size()));
  };
  add(0);
  Text before;
  for (const Text& now : sorted_texts(bytes)) {
    const size_t shared = shared_bytes(before, now, bytes);
    while (open.size() > shared + 1) {
      ends_[open.back()] = size();
      open.pop_back();
    }
    for (size_t at = shared; at < now.length; ++at) {
      add(at < kPrefix ? static_cast<uint8_t>(now.prefix >> (8 * (kPrefix - 1 - at)))
                       : static_cast<uint8_t>(bytes[static_cast<size_t>(now.token)][at]));
      open.push_back(size() - 1);
      if (at == 0) {
        root_children_[bytes_.back()] = size() - 1;
      }
    }
    tokens_.push_back(now.token);
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
