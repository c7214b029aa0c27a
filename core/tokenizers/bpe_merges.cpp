#include "core/tokenizers/bpe_merges.h"

#include <queue>
#include <utility>

namespace specdec {
namespace {

uint64_t pair_key(Token left, Token right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Joins the pieces of one stretch of text, lowest rank first, the leftmost of equals. Symbols form
// a linked list, candidate merges a heap; stale candidates are skipped when popped, so the time is
// O(n log n).
class Merger {
 public:
  Merger(const BpeMerges::Table& merges, const std::vector<Token>& symbols) : merges_(merges) {
    const auto count = static_cast<int64_t>(symbols.size());
    symbols_.reserve(symbols.size());
    for (int64_t i = 0; i < count; ++i) {
      symbols_.push_back(
          {.token = symbols[static_cast<size_t>(i)], .previous = i - 1, .next = i + 1});
    }
    for (int64_t i = 0; i + 1 < count; ++i) {
      consider(i);
    }
  }

  void run(std::vector<Token>& out) {
    while (!candidates_.empty()) {
      const Candidate best = candidates_.top();
      candidates_.pop();
      if (is_current(best)) {
        join(best);
      }
    }
    for (int64_t i = 0; i < size(); i = at(i).next) {  // the first symbol is never joined to a left
      out.push_back(at(i).token);
    }
  }

 private:
  struct Symbol {
    Token token = 0;  // -1 once joined to its left neighbour
    int64_t previous = -1;
    int64_t next = 0;  // size() after the last
  };
  struct Candidate {
    uint32_t rank = 0;
    int64_t position = 0;  // of the left symbol
    Token left = 0, right = 0, result = 0;
    bool operator<(const Candidate& other) const {  // std::priority_queue gives the largest first
      return std::pair(rank, position) > std::pair(other.rank, other.position);
    }
  };

  int64_t size() const { return static_cast<int64_t>(symbols_.size()); }
  Symbol& at(int64_t position) { return symbols_[static_cast<size_t>(position)]; }

  void consider(int64_t position) {
    if (position < 0 || at(position).next >= size()) {
      return;
    }
    const Token left = at(position).token;
    const Token right = at(at(position).next).token;
    const auto found = merges_.find(pair_key(left, right));
    if (found != merges_.end()) {
      candidates_.push({.rank = found->second.rank,
                        .position = position,
                        .left = left,
                        .right = right,
                        .result = found->second.result});
    }
  }

  bool is_current(const Candidate& candidate) {
    const Symbol& symbol = at(candidate.position);
    return symbol.token == candidate.left && symbol.next < size() &&
           at(symbol.next).token == candidate.right;
  }

  void join(const Candidate& candidate) {
    Symbol& symbol = at(candidate.position);
    at(symbol.next).token = -1;
    symbol.token = candidate.result;
    symbol.next = at(symbol.next).next;
    if (symbol.next < size()) {
      at(symbol.next).previous = candidate.position;
    }
    consider(symbol.previous);
    consider(candidate.position);
  }

  const BpeMerges::Table& merges_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> candidates_;
};

}  // namespace

BpeMerges::BpeMerges(const std::vector<BpeMerge>& merges) {
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    merges_.insert_or_assign(pair_key(merge.left, merge.right),
                             Merge{.rank = static_cast<uint32_t>(rank), .result = merge.result});
  }
}

void BpeMerges::join(const std::vector<Token>& symbols, std::vector<Token>& out) const {
  Merger(merges_, symbols).run(out);
}

std::vector<MergeRules::Merge> BpeMerges::rules() const {
  std::vector<MergeRules::Merge> all;
  all.reserve(merges_.size());
  for (const auto& [pair, merge] : merges_) {
    all.push_back({.left = static_cast<Token>(pair >> 32),
                   .right = static_cast<Token>(pair & 0xFFFFFFFF),
                   .result = merge.result,
                   .rank = merge.rank});
  }
  return all;
}

}  // namespace specdec
