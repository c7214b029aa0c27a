#include "core/kernels/metal/reduce.metalh"
#include "core/kernels/metal/sizes.h"

using namespace specdec;

namespace {

/// Largest of some numbers of a row, its id, and the second largest.
struct Best {
  float number;
  int32_t id;  ///< -1: of a NaN, which is better than all
  float second;
};

inline bool is_better(Best a, Best b) {
  if (a.id < 0 || b.id < 0) {
    return a.id < 0;
  }
  return a.number > b.number || (a.number == b.number && a.id < b.id);
}

/// The best of both sets of numbers.
inline Best joined(Best a, Best b) {
  const bool first = is_better(a, b);
  const float other = first ? b.number : a.number;
  Best best = first ? a : b;
  best.second = other > best.second ? other : best.second;
  return best;
}

inline Best from_lane(Best best, int32_t lanes) {
  return {mps::from_lane(best.number, lanes), mps::from_lane(best.id, lanes),
          mps::from_lane(best.second, lanes)};
}

}  // namespace

/// A group looks through a row. `found`: an id for each row, then the bits of its two largest.
kernel void argmax(const device float* rows [[buffer(0)]], device int32_t* ids [[buffer(1)]],
                   device float* largest [[buffer(2)]],
                   constant mps::ArgmaxSizes& sizes [[buffer(3)]],
                   threadgroup float* scratch GROUP_MEMORY,
                   uint3 group [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]],
                   uint simd_group [[simdgroup_index_in_threadgroup]]) {
  const int32_t simd_groups = mps::kRowThreads / mps::kSimdThreads;
  const device float* row = rows + static_cast<int64_t>(group.x) * sizes.size;
  threadgroup float* seconds = scratch + simd_groups;
  threadgroup int32_t* numbers_ids =
      reinterpret_cast<threadgroup int32_t*>(scratch + 2 * simd_groups);
  const mps::ThreadPlace place = mps::place_of(lane, simd_group);
  Best best = {portable::minus_infinity(), 0x7FFFFFFF, portable::minus_infinity()};
  for (int32_t id = place.index; id < sizes.size; id += mps::kRowThreads) {
    const float number = row[id];
    best = joined(best, {number, number == number ? id : -1, portable::minus_infinity()});
  }
  for (int32_t lanes = mps::kSimdThreads / 2; lanes > 0; lanes /= 2) {
    best = joined(best, from_lane(best, lanes));
  }
  if (place.lane == 0) {
    scratch[place.simd_group] = best.number;
    seconds[place.simd_group] = best.second;
    numbers_ids[place.simd_group] = best.id;
  }
  mps::wait_for_group();
  if (place.index == 0) {
    for (int32_t i = 1; i < simd_groups; ++i) {
      best = joined(best, {scratch[i], numbers_ids[i], seconds[i]});
    }
    ids[group.x] = best.id;
    largest[2 * group.x] = best.number;
    largest[2 * group.x + 1] = best.second;
  }
}
