#include "grammar/regex/code_point_partitions.h"

#include <algorithm>

#include "grammar/tables/hash.h"

namespace specdec {

uint32_t CodePointPartitions::intern(std::span<const uint32_t> lasts) {
  const auto hash = [](std::span<const uint32_t> words) {
    return WordHash().add_all(words).value();
  };
  if (const uint32_t* known = ids_.find(
          hash(lasts), [&](uint32_t id) { return std::ranges::equal(this->lasts(id), lasts); })) {
    return *known;
  }
  Partition& made = partitions_.make(size_);
  made.lasts.assign(lasts.begin(), lasts.end());
  lasts_bytes_ += lasts.size() * sizeof(uint32_t);
  for (size_t c = 0, range = 0; c < made.ascii.size(); ++c) {
    range += lasts[range] < c ? 1 : 0;
    made.ascii[c] = static_cast<uint8_t>(range);
  }
  ids_.add(size_, [&](uint32_t id) { return hash(this->lasts(id)); });
  return size_++;
}

size_t CodePointPartitions::range_of(uint32_t id, char32_t point) const {
  const Partition& partition = partitions_[id];
  if (point < partition.ascii.size()) {
    return partition.ascii[point];
  }
  const std::vector<uint32_t>& ends = partition.lasts;
  return static_cast<size_t>(std::lower_bound(ends.begin(), ends.end(), point) - ends.begin());
}

}  // namespace specdec
