#include "core/kernels/metal/reduce.metalh"
#include "core/kernels/metal/sizes.h"

using namespace specdec;

namespace {

/// Of some numbers of a row: the largest, its id, and the second largest.
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

/// Of both sets of numbers.
inline Best joined(Best a, Best b) {
  const bool first = is_better(a, b);
  const float other = first ? b.number : a.number;
  Best best = first ? a : b;
  best.second = other > best.second ? other : best.second;
  return best;
}

}  // namespace

/// A group looks through a row. `found`: an id for each row, then the bits of its two largest.
kernel void argmax(const device float* rows [[buffer(0)]], device int32_t* ids [[buffer(1)]],
                   device float* largest [[buffer(2)]],
                   constant mps::ArgmaxSizes& sizes [[buffer(3)]],
                   threadgroup float* scratch GROUP_MEMORY,
                   uint3 group [[threadgroup_position_in_grid]],
                   uint3 local [[thread_position_in_threadgroup]]) {
  const device float* row = rows + static_cast<int64_t>(group.x) * sizes.size;
  threadgroup float* seconds = scratch + mps::kRowThreads;
  threadgroup int32_t* numbers_ids =
      reinterpret_cast<threadgroup int32_t*>(scratch + 2 * mps::kRowThreads);
  const int32_t thread_index = static_cast<int32_t>(local.x);
  Best best = {portable::minus_infinity(), 0x7FFFFFFF, portable::minus_infinity()};
  for (int32_t id = thread_index; id < sizes.size; id += mps::kRowThreads) {
    const float number = row[id];
    best = joined(best, {number, number == number ? id : -1, portable::minus_infinity()});
  }
  for (int32_t half = mps::kRowThreads / 2; half > 0; half /= 2) {
    scratch[thread_index] = best.number;
    seconds[thread_index] = best.second;
    numbers_ids[thread_index] = best.id;
    mps::wait_for_group();
    if (thread_index < half) {
      best = joined(best, {scratch[thread_index + half], numbers_ids[thread_index + half],
                           seconds[thread_index + half]});
    }
    mps::wait_for_group();
  }
  if (thread_index == 0) {
    ids[group.x] = best.id;
    largest[2 * group.x] = best.number;
    largest[2 * group.x + 1] = best.second;
  }
}
