#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/tables/growing_array.h"
#include "grammar/tables/hash_slots.h"

namespace specdec {

/// All code points cut into ranges, in many ways: equal cuts are one, numbered from 0. While one
/// thread interns, others may ask for partitions whose numbers they were given.
class CodePointPartitions {
 public:
  /// `lasts`: the last code point of each range, ascending; the last of them CodePoints::kLast.
  uint32_t intern(std::span<const uint32_t> lasts);
  /// The last code point of each range of a partition, ascending.
  std::span<const uint32_t> lasts(uint32_t id) const { return partitions_[id].lasts; }
  /// Which of a partition's ranges a code point (up to CodePoints::kLast) is in.
  size_t range_of(uint32_t id, char32_t point) const;
  uint64_t bytes() const { return partitions_.bytes() + ids_.bytes() + lasts_bytes_; }

 private:
  struct Partition {
    std::vector<uint32_t> lasts;
    std::array<uint8_t, 128> ascii = {};  ///< ranges of the ASCII code points
  };

  GrowingArray<Partition> partitions_;
  uint32_t size_ = 0;
  NumberSlots ids_;
  uint64_t lasts_bytes_ = 0;
};

}  // namespace specdec
