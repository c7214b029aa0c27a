#include "grammar/regex/code_point_partitions.h"

#include <algorithm>

namespace specdec {

uint32_t CodePointPartitions::intern(std::span<const uint32_t> lasts) {
  const uint32_t id = lasts_.intern(lasts);
  if (id == ascii_.size()) {
    auto& ascii = ascii_.emplace_back();
    for (size_t c = 0, range = 0; c < ascii.size(); ++c) {
      range += lasts[range] < c ? 1 : 0;
      ascii[c] = static_cast<uint8_t>(range);
    }
  }
  return id;
}

size_t CodePointPartitions::range_of(uint32_t id, char32_t point) const {
  if (point < ascii_[id].size()) {
    return ascii_[id][point];
  }
  const std::span<const uint32_t> ends = lasts(id);
  return static_cast<size_t>(std::lower_bound(ends.begin(), ends.end(), point) - ends.begin());
}

}  // namespace specdec
