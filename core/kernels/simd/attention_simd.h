// What a chunk of keys contributes to the nodes of a tile; see core/kernels/attention.h for the
// arithmetic, core/kernels/attention.cpp for tiles and core/kernels/simd/for_each_simd.h.
#include "core/kernels/simd/attention_cache_simd.h"
#include "core/kernels/simd/attention_mix_simd.h"
#include "core/kernels/simd/attention_scores_simd.h"

/// Adds the bias of a node to its scores, one at each position that it sees.
template <class T, class Kv>
inline void add_bias(const ChunkTask<T, Kv>& task, const SeenKeys& seen, T* scores) {
  for (int64_t position = seen.begin; position < seen.end; ++position) {
    const int64_t slot = task.slot(seen, position);
    if (slot < task.bias_columns) {
      scores[position - seen.begin] += static_cast<T>(seen.bias[slot]);
    }
  }
}

/// Turns a row's raw scores, `count` of them, into exp(score - largest), and writes down the
/// largest and the sum. Not inlined, so that every row is computed by the same instructions.
template <class T, class Kv>
__attribute__((noinline)) void soften(const ChunkTask<T, Kv>& task, const SeenKeys& seen, T* scores,
                                      RowPart<T>& part) {
  constexpr int kCount = Lanes<T>::kCount;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const int64_t count = seen.end - seen.begin;
  const int64_t padded = (count + kCount - 1) / kCount * kCount;
  std::fill(scores + count, scores + padded, T{0});
  for (int64_t j = 0; j < padded; j += kCount) {
    const Vec<T> scaled = load(scores + j) * task.scale;
    store<T>(scores + j,
             task.soft_cap > 0 ? tanh<T>(scaled / task.soft_cap) * task.soft_cap : scaled);
  }
  if (seen.bias != nullptr) {
    add_bias(task, seen, scores);
  }
  std::fill(scores + count, scores + padded, -kInfinity);
  Vec<T> tops = splat<T>(-kInfinity);
  for (int64_t j = 0; j < padded; j += kCount) {
    tops = maximum<T>(load(scores + j), tops);
  }
  const T top = largest<T>(tops);
  part.largest = top;
  part.total = 0;
  if (top == -kInfinity) {  // the bias hides all of them
    return;
  }
  Vec<T> total = splat<T>(0);
  for (int64_t j = 0; j < padded; j += kCount) {
    const Vec<T> weights = exp<T>(load(scores + j) - top);
    store<T>(scores + j, weights);
    total += weights;
  }
  part.total = sum<T>(total);
}

/// The chunk's part of every row of the task.
template <class T, class Kv>
inline void attend_chunk(const ChunkTask<T, Kv>& task) {
  score_rows(task);
  for (int64_t i = 0; i < task.nodes; ++i) {
    const SeenKeys& seen = task.seen[i];
    for (int64_t r = i * task.group; r < (i + 1) * task.group; ++r) {
      T* scores = task.rows[r].scores;
      // A key on a path lies at its position's slot or later, so none is overwritten before it is
      // read.
      for (int64_t p = std::max(seen.begin, task.length); seen.path != nullptr && p < seen.end;
           ++p) {
        scores[p - task.first_slot] = scores[task.slot(seen, p) - task.first_slot];
      }
      soften(task, seen, scores + seen.begin - task.first_slot, *task.rows[r].part);
    }
  }
  mix_rows(task);
}

/// Adds the part of the next chunk to the sum of those before it.
template <class T>
__attribute__((noinline)) void add_part(const RowPart<T>& part, int64_t dim, RowPart<T>& sums) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  constexpr int kCount = Lanes<T>::kCount;
  if (part.largest == -kInfinity) {
    return;
  }
  if (sums.largest == -kInfinity) {
    sums.largest = part.largest;
    sums.total = part.total;
    std::copy(part.mixed, part.mixed + dim, sums.mixed);
    return;
  }
  const T top = part.largest > sums.largest ? part.largest : sums.largest;
  Vec<T> exponents = splat<T>(part.largest - top);
  exponents[0] = sums.largest - top;
  const Vec<T> factors = exp<T>(exponents);
  const Vec<T> old_factor = splat<T>(factors[0]);
  const Vec<T> factor = splat<T>(factors[1]);
  const auto scaled = [&](Vec<T> old_sums, Vec<T> numbers) {
    return fused<T>(numbers, factor, old_sums * old_factor);
  };
  sums.largest = top;
  sums.total = scaled(splat<T>(sums.total), splat<T>(part.total))[0];
  for (int64_t d = 0; d < dim; d += kCount) {
    const int64_t left = dim - d;
    store_lanes(sums.mixed + d,
                scaled(load_lanes(sums.mixed + d, left), load_lanes(part.mixed + d, left)), left);
  }
}

template <class T>
inline void finish_row(const RowPart<T>& sums, int64_t dim, T* out) {
  const T inverse = 1 / sums.total;
  for (int64_t d = 0; d < dim; d += Lanes<T>::kCount) {
    store_lanes(out + d, load_lanes(sums.mixed + d, dim - d) * inverse, dim - d);
  }
}
