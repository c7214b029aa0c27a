#include "grammar/tables/token_trie.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "core/error.h"

namespace specdec {
namespace {

constexpr size_t kPrefix = 16;

/// A token's text, most often told by its first bytes alone: the others lie elsewhere.
struct Text {
  std::array<uint64_t, kPrefix / 8> prefix = {};  ///< as numbers, which sort as the bytes do
  Token token = 0;
  uint32_t length = 0;

  uint8_t byte(size_t at) const {  ///< at < kPrefix
    return static_cast<uint8_t>(prefix[at / 8] >> (8 * (7 - at % 8)));
  }
};

/// Sorts by the first eight bytes: by the last of them first, each pass keeping the order of those
/// before (LSD radix sort).
void sort_by_first_bytes(std::vector<Text>& texts) {
  constexpr int kBits = 11;
  constexpr uint64_t kDigits = uint64_t{1} << kBits;
  std::vector<Text> sorted(texts.size());
  std::vector<uint32_t> starts(kDigits + 1);
  for (int shift = 0; shift < 64; shift += kBits) {
    const auto digit = [&](const Text& text) { return text.prefix[0] >> shift & (kDigits - 1); };
    std::fill(starts.begin(), starts.end(), 0);
    for (const Text& text : texts) {
      ++starts[digit(text) + 1];
    }
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    for (const Text& text : texts) {
      sorted[starts[digit(text)]++] = text;
    }
    texts.swap(sorted);
  }
}

/// Tokens that stand for something, by their bytes, equals by their ids.
std::vector<Text> sorted_texts(const std::vector<std::string_view>& bytes) {
  std::vector<Text> texts;
  texts.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    Text text = {.token = static_cast<Token>(i), .length = static_cast<uint32_t>(bytes[i].size())};
    for (size_t at = 0; at < std::min(kPrefix, bytes[i].size()); ++at) {
      text.prefix[at / 8] |= uint64_t{static_cast<uint8_t>(bytes[i][at])} << (8 * (7 - at % 8));
    }
    if (text.length > 0) {
      texts.push_back(text);
    }
  }
  sort_by_first_bytes(texts);
  const auto is_before = [&](const Text& a, const Text& b) {  // of equal first bytes
    if (a.prefix[1] != b.prefix[1]) {
      return a.prefix[1] < b.prefix[1];
    }
    if (a.length > kPrefix && b.length > kPrefix) {
      const int order =
          bytes[static_cast<size_t>(a.token)].compare(bytes[static_cast<size_t>(b.token)]);
      return order != 0 ? order < 0 : a.token < b.token;
    }
    return a.length != b.length ? a.length < b.length : a.token < b.token;
  };
  for (auto first = texts.begin(); first != texts.end();) {
    const auto last = std::find_if(
        first, texts.end(), [&](const Text& text) { return text.prefix[0] != first->prefix[0]; });
    std::sort(first, last, is_before);
    first = last;
  }
  return texts;
}

/// Bytes at which two texts begin alike.
size_t shared_bytes(const Text& a, const Text& b, const std::vector<std::string_view>& bytes) {
  const size_t shorter = std::min(a.length, b.length);
  size_t same = 0;
  for (size_t i = 0; i < a.prefix.size() && same == 8 * i; ++i) {
    same += static_cast<size_t>(std::countl_zero(a.prefix[i] ^ b.prefix[i])) / 8;
  }
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
  const std::vector<Text> texts = sorted_texts(bytes);
  std::vector<uint32_t> shared(texts.size());  // with the text before
  size_t nodes = 1;
  for (size_t i = 0; i < texts.size(); ++i) {
    shared[i] = i == 0 ? 0 : static_cast<uint32_t>(shared_bytes(texts[i - 1], texts[i], bytes));
    nodes += texts[i].length - shared[i];
  }
  bytes_.resize(nodes);
  depths_.resize(nodes);
  ends_.resize(nodes, static_cast<Node>(nodes));
  first_token_.resize(nodes + 1);
  tokens_.reserve(texts.size());
  std::vector<Node> open = {0};  // the path to the newest node, by depth
  Node node = 1;
  for (size_t i = 0; i < texts.size(); ++i) {
    const Text& text = texts[i];
    for (; open.size() > shared[i] + 1; open.pop_back()) {
      ends_[open.back()] = node;
    }
    if (shared[i] == 0) {
      root_children_[text.byte(0)] = node;
    }
    for (size_t at = shared[i]; at < text.length; ++at, ++node) {
      bytes_[node] = at < kPrefix
                         ? text.byte(at)
                         : static_cast<uint8_t>(bytes[static_cast<size_t>(text.token)][at]);
      depths_[node] = static_cast<uint32_t>(open.size());
      first_token_[node] = static_cast<uint32_t>(tokens_.size());
      open.push_back(node);
    }
    tokens_.push_back(text.token);
  }
  first_token_.back() = static_cast<uint32_t>(tokens_.size());
}

std::optional<TokenTrie> TokenTrie::read(const CacheFile& file, const CacheKey& key) {
  TokenTrie trie({});
  std::vector<int64_t> size;
  const bool whole = file.read_parts(key, size, trie.bytes_, trie.depths_, trie.ends_,
                                     trie.first_token_, trie.tokens_, trie.root_children_);
  const size_t nodes = trie.bytes_.size();
  if (!whole || size.size() != 1 || trie.depths_.size() != nodes || trie.ends_.size() != nodes ||
      trie.first_token_.size() != nodes + 1 || trie.root_children_.size() != 256) {
    return std::nullopt;
  }
  trie.vocab_size_ = size.front();
  return trie;
}

void TokenTrie::write(CacheFileWriter& file, const CacheKey& key) const {
  file.add_parts(key, std::vector{vocab_size_}, bytes_, depths_, ends_, first_token_, tokens_,
                 root_children_);
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
