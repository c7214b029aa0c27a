#include "grammar/canonical/merge_pairs.h"

#include <algorithm>
#include <limits>

#include "core/formats/utf8.h"

namespace specdec {
namespace {

constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

}  // namespace

MergePairs::MergePairs(const Tokenizer& tokenizer, const MergeRules& rules)
    : first_bytes_(static_cast<size_t>(tokenizer.vocab_size())),
      first_byte_(static_cast<size_t>(tokenizer.vocab_size())),
      nodes_(static_cast<size_t>(tokenizer.vocab_size())) {
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::string_view bytes = tokenizer.token_bytes(token);
    first_byte_[static_cast<size_t>(token)] =
        bytes.empty() ? 0 : static_cast<uint8_t>(bytes.front());
  }
  std::vector<bool> whole(nodes_.size(), false);
  for (const Token token : rules.whole) {
    whole[static_cast<size_t>(token)] = true;
  }
  add_merges(rules, whole);
  find_splits(tokenizer, whole);
  plant_forest();
}

void MergePairs::add_merges(const MergeRules& rules, const std::vector<bool>& whole) {
  const auto is_whole = [&](Token token) { return whole[static_cast<size_t>(token)]; };
  std::vector<MergeRules::Merge> sorted = rules.merges;
  std::erase_if(sorted, [&](const MergeRules::Merge& merge) {
    return is_whole(merge.left) || is_whole(merge.right) || is_whole(merge.result);
  });
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.left, a.right) < std::pair(b.left, b.right);
  });
  first_merge_.resize(nodes_.size() + 1);
  for (const MergeRules::Merge& merge : sorted) {
    merges_.push_back({merge.right, merge.result, merge.rank + 1});
    ++first_merge_[static_cast<size_t>(merge.left) + 1];
    first_bytes_[static_cast<size_t>(merge.left)].set(
        first_byte_[static_cast<size_t>(merge.right)]);
  }
  for (size_t i = 1; i < first_merge_.size(); ++i) {
    first_merge_[i] += first_merge_[i - 1];
  }
}

std::span<const MergePairs::Merge> MergePairs::merges_of(Token left) const {
  const uint32_t begin = first_merge_[static_cast<size_t>(left)];
  return std::span(merges_).subspan(begin, first_merge_[static_cast<size_t>(left) + 1] - begin);
}

const MergePairs::Merge* MergePairs::find(Token left, Token right) const {
  const auto merges = merges_of(left);
  const auto found =
      std::lower_bound(merges.begin(), merges.end(), right,
                       [](const Merge& merge, Token wanted) { return merge.right < wanted; });
  return found != merges.end() && found->right == right ? &*found : nullptr;
}

void MergePairs::join(std::vector<Token>& symbols, Node& last) const {
  std::vector<const Merge*> merges(symbols.size(), nullptr);  // of each symbol with the next
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    merges[i] = find(symbols[i], symbols[i + 1]);
  }
  while (true) {
    size_t best = symbols.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const bool better =
          merges[i] != nullptr && (best == symbols.size() || merges[i]->rank < merges[best]->rank);
      best = better ? i : best;
    }
    if (best == symbols.size()) {
      return;
    }
    const Merge& merge = *merges[best];
    last.in_order = last.in_order && merge.rank >= last.rank;
    last.left = symbols[best];
    last.right = symbols[best + 1];
    last.rank = merge.rank;
    symbols[best] = merge.result;
    symbols.erase(symbols.begin() + static_cast<int64_t>(best) + 1);
    merges.erase(merges.begin() + static_cast<int64_t>(best) + 1);
    merges[best] = best + 1 < symbols.size() ? find(symbols[best], symbols[best + 1]) : nullptr;
    if (best > 0) {
      merges[best - 1] = find(symbols[best - 1], symbols[best]);
    }
  }
}

void MergePairs::find_splits(const Tokenizer& tokenizer, const std::vector<bool>& whole) {
  std::vector<Token> symbols;
  for (Token token = 0; token < tokenizer.vocab_size(); ++token) {
    if (tokenizer.token_bytes(token).empty() || whole[static_cast<size_t>(token)]) {
      continue;
    }
    symbols.clear();
    std::string_view text = tokenizer.piece(token);
    bool known = true;
    while (!text.empty() && known) {
      const size_t bytes = scan_utf8(text).bytes;
      const auto character = tokenizer.find_piece(text.substr(0, bytes));
      known = character.has_value();
      symbols.push_back(character.value_or(0));
      text.remove_prefix(bytes);
    }
    Node& node = token_of(token);
    if (known) {
      join(symbols, node);
    }
    node.reachable = known && symbols.size() == 1 && symbols.front() == token;
    if (node.reachable && !node.in_order) {
      odd_.push_back(token);
    }
  }
}

/// A token's children are those whose last merge has it on the left.
void MergePairs::plant_forest() {
  for (Token token = 0; token < static_cast<Token>(nodes_.size()); ++token) {
    if (token_of(token).reachable && token_of(token).left >= 0) {
      children_.push_back(token);
    }
  }
  std::sort(children_.begin(), children_.end(), [&](Token a, Token b) {
    return std::pair(token_of(a).left, token_of(a).rank) <
           std::pair(token_of(b).left, token_of(b).rank);
  });
  for (uint32_t i = 0; i < children_.size(); ++i) {
    Node& parent = token_of(token_of(children_[i]).left);
    parent.first_child = parent.children == 0 ? i : parent.first_child;
    ++parent.children;
  }
  std::vector<Token> open;
  for (Token root = 0; root < static_cast<Token>(nodes_.size()); ++root) {
    if (!token_of(root).reachable || token_of(root).left >= 0) {
      continue;
    }
    for (open.push_back(root); !open.empty();) {
      const Token token = open.back();
      Node& node = token_of(token);
      if (!order_.empty() && node.begin < order_.size() && order_[node.begin] == token) {
        node.end = static_cast<uint32_t>(order_.size());
        open.pop_back();
        continue;
      }
      node.begin = static_cast<uint32_t>(order_.size());
      order_.push_back(token);
      for (uint32_t i = node.children; i-- > 0;) {
        open.push_back(children_[node.first_child + i]);
      }
    }
  }
}

/// The tokens that begin, by merges, with the merge's right side and have it as long as the merge
/// needs. `until`: when `left` is gone.
void MergePairs::add_ranges(Token left, Token right, uint32_t until, const Merge& merge,
                            std::vector<Range>& ranges) const {
  const Node& y = token_of(right);
  // Of equal ranks the leftmost is joined first: within the left token, then over the border.
  if (!y.reachable || merge.rank >= until || y.rank >= until) {
    return;
  }
  ranges.push_back({y.begin, y.begin + 1});
  const uint32_t from = std::max(merge.rank, token_of(left).rank);
  const auto children = std::span(children_).subspan(y.first_child, y.children);
  const auto late =
      std::lower_bound(children.begin(), children.end(), from,
                       [&](Token child, uint32_t rank) { return token_of(child).rank < rank; });
  if (late != children.end()) {
    ranges.push_back({token_of(*late).begin, y.end});
  }
}

void MergePairs::remove_in(std::vector<Range> ranges, MaskWords& words) const {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  uint32_t done = 0;
  for (const Range& range : ranges) {
    for (uint32_t i = std::max(done, range.begin); i < range.end; ++i) {
      set_token(words, order_[i], false);
    }
    done = std::max(done, range.end);
  }
}

void MergePairs::remove_after(Token left, MaskWords& words) const {
  const auto try_each = [&](const std::vector<Token>& tokens, const MaskWords& before) {
    for (const Token token : tokens) {
      set_token(words, token, has_token(before, token) && stay_apart(left, token));
    }
  };
  const MaskWords before = words;
  if (!token_of(left).in_order) {
    try_each(order_, before);
    return;
  }
  std::vector<Range> ranges;
  uint32_t until = kNever;
  for (Token part = left; part >= 0; part = token_of(part).right) {
    for (const Merge& merge : merges_of(part)) {
      add_ranges(part, merge.right, until, merge, ranges);
    }
    until = token_of(part).rank;
  }
  remove_in(std::move(ranges), words);
  try_each(odd_, before);
}

bool MergePairs::stay_apart(Token left, Token right) const {
  std::vector<Token> symbols;
  append_characters(left, symbols);
  append_characters(right, symbols);
  Node last;
  join(symbols, last);
  return symbols == std::vector<Token>{left, right};
}

void MergePairs::append_characters(Token token, std::vector<Token>& symbols) const {
  const Node& node = token_of(token);
  if (node.left < 0) {
    symbols.push_back(token);
  } else {
    append_characters(node.left, symbols);
    append_characters(node.right, symbols);
  }
}

MergePairs::Bytes MergePairs::joining_bytes(Token left, bool roughly) const {
  Bytes bytes;
  uint32_t until = token_of(left).in_order ? kNever : 0;
  for (Token part = left; part >= 0; part = token_of(part).right) {
    if (roughly || !token_of(left).in_order) {
      bytes |= first_bytes_[static_cast<size_t>(part)];
      continue;
    }
    for (const Merge& merge : merges_of(part)) {
      if (merge.rank < until && token_of(merge.right).rank < until) {
        bytes.set(first_byte_[static_cast<size_t>(merge.right)]);
      }
    }
    until = token_of(part).rank;
  }
  return bytes;
}

}  // namespace specdec
