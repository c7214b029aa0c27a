#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/tables/sequence_table.h"

namespace specdec {

/// All code points cut into ranges, in many ways: equal cuts are one, numbered from 0.
class CodePointPartitions {
 public:
  /// `lasts`: the last code point of each range, ascending; the last of them CodePoints::kLast.
  uint32_t intern(std::span<const uint32_t> lasts);
  /// The same. Lives until the next partition comes in.
  std::span<const uint32_t> lasts(uint32_t id) const { return lasts_[id]; }
  /// Which of a partition's ranges a code point (up to CodePoints::kLast) is in.
  size_t range_of(uint32_t id, char32_t point) const;
  uint64_t bytes() const { return lasts_.bytes() + ascii_.capacity() * sizeof ascii_[0]; }

 private:
  SequenceTable lasts_;
  std::vector<std::array<uint8_t, 128>> ascii_;  ///< by partition: ranges of the ASCII code points
};

}  // namespace specdec
