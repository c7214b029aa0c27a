#pragma once
// Products of attention's first kernel on tensor cores: how lanes read a step of keys or values,
// and multiply it with queries or weights.
#include "core/kernels/cuda/chunk_tile.cuh"
#include "core/kernels/cuda/kv_formats.cuh"
#include "core/kernels/cuda/tensor_product.cuh"

namespace specdec::cuda {

constexpr int kRowTiles = 4;  // of a block, at most: rows that read a chunk once
constexpr int kSpan = 4;      // steps whose sums are made by tensor cores

/// Whether numbers are codes with a scale, else by themselves.
template <class Kv>
constexpr bool kIsCoded = std::is_same<typename Kv::Element, uint8_t>::value;
/// Steps that are read before the first of them is multiplied: one where codes are decoded, which
/// takes registers.
template <class Kv>
constexpr int kAhead = kIsCoded<Kv> ? 1 : kSpan;

/// What a lane holds of a step of keys or values: number 2 * w + i is in word w of the left
/// operand, of row lane / 4 + w % 2 * 8 and column fragment_input(lane, w / 2) + i. Rows that are 8
/// apart there are neighbours in memory.
using StepNumbers = float[8];

/// Sets the numbers of both rows of a column: number i of `half` of a step.
__device__ inline void set_pair(StepNumbers& numbers, int half, int i, KvPair pair) {
  numbers[4 * half + i] = pair.number[0];
  numbers[4 * half + 2 + i] = pair.number[1];
}

/// Sums of a step or more, as a lane holds them: number i of a tile of rows is of its row lane % 4
/// * 2 + i % 2, and of position or dimension lane / 4 * 2 + i / 2.
struct RowSums {
  float numbers[kRowTiles][4] = {};

  __device__ void add(const RowSums& others) {
#pragma unroll
    for (int row_tile = 0; row_tile < kRowTiles; ++row_tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        numbers[row_tile][i] += others.numbers[row_tile][i];
      }
    }
  }
};

__device__ inline int row_of(int row_tile, int i) {
  return row_tile * kTileRows + static_cast<int>(lane_index()) % 4 * 2 + i % 2;
}
__device__ inline int column_of(int i) { return static_cast<int>(lane_index()) / 4 * 2 + i / 2; }

/// Numbers as the left operand: each part has the upper bits of what those before leave.
template <class Kv>
__device__ inline void expand(const StepNumbers& numbers, uint32_t (&words)[Kv::kParts][4]) {
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    float low = numbers[2 * w];
    float high = numbers[2 * w + 1];
#pragma unroll
    for (int part = 0; part < Kv::kParts; ++part) {
      const uint32_t upper = device::bits_of(high) & 0xFFFF0000U;
      words[part][w] = device::bits_of(low) >> 16U | upper;
      low -= device::float_of(device::bits_of(low) & 0xFFFF0000U);
      high -= device::float_of(upper);
    }
  }
}

/// Adds the products of a step or group of the tile with the rows of a view.
template <class Kv>
__device__ inline void multiply_rows(const Tile& tile, const SharedView& view, int step,
                                     const StepNumbers& numbers, RowSums& sums) {
  uint32_t words[Kv::kParts][4];
  expand<Kv>(numbers, words);
  if (view.is_whole) {
#pragma unroll
    for (int row_tile = 0; row_tile < kRowTiles; ++row_tile) {
      if (row_tile * kTileRows < view.end) {
        multiply_parts<Kv>(words, read_step(tile.fragments(step, row_tile) + lane_index()),
                           sums.numbers[row_tile]);
      }
    }
    return;
  }
#pragma unroll
  for (int row_tile = 0; row_tile < kRowTiles; ++row_tile) {
    if (view.has_tile(row_tile)) {
      float(&all)[4] = sums.numbers[row_tile];
      float with[4] = {all[0], all[1], all[2], all[3]};
      multiply_parts<Kv>(words, read_step(tile.fragments(step, row_tile) + lane_index()), with);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        all[i] = view.has(row_of(row_tile, i)) ? with[i] : all[i];
      }
    }
  }
}

/// Where element 0 of the key of a row of values lies.
__device__ inline int64_t key_of(const PagedCache& cache, int32_t row) {
  const int32_t in_page = row % cache.page_size;
  return static_cast<int64_t>(row - in_page) * cache.width + in_page;
}

/// The two keys of a group that a lane reads.
struct LaneKeys {
  int64_t begins[2];  ///< where element 0 lies; negative = the key is hidden
  bool in_pairs;      ///< whether numbers of both lie side by side, the first at an even place
};

__device__ inline LaneKeys lane_keys(const PagedCache& cache, const int32_t* visible) {
  const int32_t first = visible[0];
  const int32_t second = visible[1];
  return {{first == kHidden ? -1 : key_of(cache, first),
           second == kHidden ? -1 : key_of(cache, second)},
          first != kHidden && second == first + 1 && first % 2 == 0 && cache.page_size % 2 == 0};
}

/// A step of a lane's keys that were rounded by themselves; 0 for a hidden one, and beyond the
/// head.
template <class Kv>
__device__ inline void read_own_keys(const PagedCache& cache, const Tile& tile,
                                     const LaneKeys& lane, int step, StepNumbers& numbers) {
  const Kv kv = kv_with<Kv>(tile.levels);
  const auto* keys = static_cast<const typename Kv::Element*>(cache.keys);
  const int begin = step * kStepInputs;
  if constexpr (!kIsCoded<Kv>) {
    if (lane.in_pairs) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int d = begin + fragment_input(static_cast<int>(lane_index()), n / 2) + n % 2;
        set_pair(
            numbers, n / 2, n % 2,
            d < cache.head_dim ? Kv::pair(keys + lane.begins[0] + d * cache.page_size) : KvPair{});
      }
      return;
    }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const bool exists = lane.begins[j] >= 0 && begin < cache.head_dim;
    const auto* key = keys + (exists ? lane.begins[j] : 0);
    const float scale =
        exists ? kv.scale(key, cache.page_size, cache.head_dim, begin / kWarp) : 0.0F;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int d = begin + fragment_input(static_cast<int>(lane_index()), n / 2) + n % 2;
      numbers[n / 2 * 4 + 2 * j + n % 2] =
          exists && d < cache.head_dim
              ? device::rounded_product(kv.code(key, cache.page_size, cache.head_dim, d), scale)
              : 0.0F;
    }
  }
}

/// Reads keys that were rounded in groups of tokens; pages hold whole groups.
template <class Kv>
__device__ inline void read_grouped_keys(const PagedCache& cache, const LaneKeys& lane, int step,
                                         StepNumbers& numbers) {
  const auto* keys = static_cast<const typename Kv::Element*>(cache.keys);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int d = step * kStepInputs + fragment_input(static_cast<int>(lane_index()), half);
    typename Kv::KeyRanges ranges = {};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      KvPair pair = {};
      if (lane.begins[j] >= 0 && d < cache.head_dim) {
        const auto token = static_cast<int>(lane.begins[j] & (device::kRangedTokens - 1));
        const auto* group = keys + (lane.begins[j] - token);
        if (j == 0 || !lane.in_pairs) {  // else both keys are of a group
          ranges = Kv::KeyRanges::read(group, cache.page_size, cache.head_dim, d);
        }
        pair = ranges.of(group, cache.page_size, token, d);
      }
      numbers[4 * half + 2 * j] = pair.number[0];
      numbers[4 * half + 2 * j + 1] = pair.number[1];
    }
  }
}

template <class Kv>
__device__ inline void read_keys(const PagedCache& cache, const Tile& tile, const LaneKeys& lane,
                                 int step, StepNumbers& numbers) {
  if constexpr (kIsRanged<Kv>) {
    read_grouped_keys<Kv>(cache, lane, step, numbers);
  } else {
    read_own_keys<Kv>(cache, tile, lane, step, numbers);
  }
}

/// Numbers d and d + 1 of a row of values, for an even d below head_dim.
template <class Kv>
__device__ inline KvPair value_pair(const PagedCache& cache, const Tile& tile, int32_t row, int d) {
  const auto* value = static_cast<const typename Kv::Element*>(cache.values) +
                      static_cast<int64_t>(row) * cache.width;
  if constexpr (kIsRanged<Kv>) {
    return Kv::value_pair(value, cache.head_dim, d);
  } else if constexpr (kIsCoded<Kv>) {
    const Kv kv = kv_with<Kv>(tile.levels + kLevels);
    const float scale = kv.scale(value, 1, cache.head_dim, d / kWarp);
    return {{device::rounded_product(kv.code(value, 1, cache.head_dim, d), scale),
             device::rounded_product(kv.code(value, 1, cache.head_dim, d + 1), scale)}};
  } else {
    return Kv::pair(value + d);
  }
}

/// 16 dimensions of the values of a group; 0 for a hidden one, which may be anything in memory.
template <class Kv>
__device__ inline void read_values(const PagedCache& cache, const Tile& tile, int32_t node,
                                   int group, int unit, StepNumbers& numbers) {
  const int d = unit * kStepInputs + column_of(0);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int offset = group * kGroup + fragment_input(static_cast<int>(lane_index()), half) + i;
      const int32_t row = tile.visible[node * kChunk + offset];
      set_pair(
          numbers, half, i,
          row != kHidden && d < cache.head_dim ? value_pair<Kv>(cache, tile, row, d) : KvPair{});
    }
  }
}

}  // namespace specdec::cuda
