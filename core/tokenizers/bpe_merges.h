#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/formats/tokenizer_json_reader.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// The merges of a BPE vocabulary (Sennrich et al., 2016, arXiv:1508.07909).
class BpeMerges {
 public:
  struct Merge {
    uint32_t rank = 0;
    Token result = 0;
  };
  using Table = std::unordered_map<uint64_t, Merge>;  ///< by left << 32 | right

  /// Earlier merges come first; of two of one pair the later counts.
  explicit BpeMerges(const std::vector<BpeMerge>& merges);

  /// Joins neighbours of one stretch of text until none can be, lowest rank first, the leftmost of
  /// equals, and appends what is left.
  void join(const std::vector<Token>& symbols, std::vector<Token>& out) const;
  /// The merges in any order.
  std::vector<MergeRules::Merge> rules() const;

 private:
  Table merges_;
};

}  // namespace specdec
