// Values of a chunk mixed with their weights: neighbouring keys, rows times vectors of dimensions;
// see core/kernels/simd/attention_simd.h.

/// Neighbouring positions whose values lie in neighbouring slots.
struct KeyRun {
  int64_t position, slot, count;
};

/// Dimensions of a value from `dim` on, before their scale: a vector, or the last ones.
template <bool kWhole, class T, class Kv>
inline Vec<T> load_numbers(const ChunkTask<T, Kv>& task, const Kv* value, int64_t dim) {
  if constexpr (!kWhole) {
    const int64_t left = elements_of<Kv>(task.head_dim - dim);
    const auto part = [&](const Kv* from) { return PartOfVector<T, Kv>(from, left); };
    const Kv* from = value + elements_of<Kv>(dim);
    if constexpr (std::is_same_v<Kv, Q3Codes>) {
      return load_levels<T>(part(from).elements, dim % kQ3Block, task.value_levels);
    } else if constexpr (std::is_same_v<Kv, HalfCodes>) {
      return load_cache<T>(part(from).elements) * 16.0F +
             load_cache<T>(part(from + lower_half_offset(task.head_dim)).elements);
    } else {
      return load_cache<T>(part(from).elements);
    }
  } else if constexpr (std::is_same_v<Kv, Q3Codes>) {
    return load_levels<T>(value + elements_of<Kv>(dim), dim % kQ3Block, task.value_levels);
  } else if constexpr (std::is_same_v<Kv, HalfCodes>) {
    const Kv* from = value + elements_of<Kv>(dim);
    return load_cache<T>(from) * 16.0F + load_cache<T>(from + lower_half_offset(task.head_dim));
  } else {
    return load_cache<T>(value + elements_of<Kv>(dim));
  }
}

/// Loads numbers of a value, times their scale or between the bounds of their group. A code times a
/// step is exact.
template <bool kWhole, class T, class Kv>
inline Vec<T> load_value(const ChunkTask<T, Kv>& task, const Kv* value, int64_t dim) {
  const Vec<T> numbers = load_numbers<kWhole>(task, value, dim);
  if constexpr (kHasScales<Kv>) {
    uint16_t bits;
    std::memcpy(&bits, value + elements_of<Kv>(task.head_dim) + dim / kKvGroup * 2, sizeof bits);
    return numbers * (widen_halves(HalfBits{} + bits) * kScaleUnit<Kv>);
  } else if constexpr (kIsRanged<Kv>) {
    uint16_t bits[2];
    std::memcpy(&bits, value + elements_of<Kv>(task.head_dim) + dim / kKvGroup * 4, sizeof bits);
    return numbers * widen_halves(HalfBits{} + bits[1]) + widen_halves(HalfBits{} + bits[0]);
  } else {
    return numbers;
  }
}

/// Adds a run's values, times their weights, to the dimensions from `dim` on of R rows: V vectors;
/// `lanes` less than a vector's only for the last, lone one.
template <int R, int V, bool kWhole, class T, class Kv>
inline void mix_tile(const ChunkTask<T, Kv>& task, const TileRow<T>* rows, const KeyRun& run,
                     int64_t dim) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t lanes = kWhole ? kCount : task.head_dim - dim;
  const T* weights[R];
  Vec<T> sums[R][V];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    weights[r] = rows[r].scores + run.position - task.first_slot;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      sums[r][v] = load_lanes(rows[r].part->mixed + dim + v * kCount, lanes);
    }
  }
  for (int64_t done = 0; done < run.count;) {
    const int64_t slot = run.slot + done;
    const int64_t in_page = slot % task.page_size;
    const int64_t stop = std::min(run.count, done + task.page_size - in_page);
    const Kv* value = task.values + task.page(slot) + in_page * task.width;
    for (; done < stop; ++done, value += task.width) {
      Vec<T> numbers[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        numbers[v] = load_value<kWhole>(task, value, dim + int64_t{v} * kCount);
      }
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const Vec<T> weight = splat(weights[r][done]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
          sums[r][v] = fused<T>(numbers[v], weight, sums[r][v]);
        }
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      store_lanes(rows[r].part->mixed + dim + v * kCount, sums[r][v], lanes);
    }
  }
}

/// `count` rows, at most R.
template <int R, int V, bool kWhole, class T, class Kv>
inline void mix_some_rows(const ChunkTask<T, Kv>& task, const TileRow<T>* rows, int64_t count,
                          const KeyRun& run, int64_t dim) {
  if constexpr (R > 1) {
    if (count < R) {
      mix_some_rows<R - 1, V, kWhole>(task, rows, count, run, dim);
      return;
    }
  }
  mix_tile<R, V, kWhole>(task, rows, run, dim);
}

/// All `count` rows, in tiles of about the same size.
template <int V, bool kWhole, class T, class Kv>
inline void mix_dimensions(const ChunkTask<T, Kv>& task, const TileRow<T>* rows, int64_t count,
                           const KeyRun& run, int64_t dim) {
  const int64_t tiles = (count + kRows - 1) / kRows;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t first = i * count / tiles;
    mix_some_rows<kRows, V, kWhole>(task, rows + first, (i + 1) * count / tiles - first, run, dim);
  }
}

/// The part of the values that stays in the first-level cache goes through all rows.
template <class T, class Kv>
inline void mix_run(const ChunkTask<T, Kv>& task, const TileRow<T>* rows, int64_t count,
                    const KeyRun& run) {
  constexpr int kCount = Lanes<T>::kCount;
  constexpr int64_t kSeveral = int64_t{kVectors} * kCount;
  int64_t dim = 0;
  for (; dim + kSeveral <= task.head_dim; dim += kSeveral) {
    mix_dimensions<kVectors, true>(task, rows, count, run, dim);
  }
  for (; dim + kCount <= task.head_dim; dim += kCount) {
    mix_dimensions<1, true>(task, rows, count, run, dim);
  }
  if (dim < task.head_dim) {
    mix_dimensions<1, false>(task, rows, count, run, dim);
  }
}

/// The positions begin to end of one node.
template <class T, class Kv>
inline void mix_alone(const ChunkTask<T, Kv>& task, int64_t node, int64_t begin, int64_t end) {
  const TileRow<T>* rows = task.rows + node * task.group;
  const SeenKeys& seen = task.seen[node];
  while (begin < end) {
    KeyRun run{begin, task.slot(seen, begin), 1};
    while (begin + run.count < end && task.slot(seen, begin + run.count) == run.slot + run.count) {
      ++run.count;
    }
    mix_run(task, rows, task.group, run);
    begin += run.count;
  }
}

/// Each row's values in the order of their positions. What all nodes see in the same slots is read
/// once for all of them; what lies before or behind it, paths among it, is read for each alone.
template <class T, class Kv>
inline void mix_rows(const ChunkTask<T, Kv>& task) {
  const int64_t rows = task.nodes * task.group;
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
  for (int64_t i = 0; i < task.nodes; ++i) {
    const SeenKeys& seen = task.seen[i];
    begin = std::max(begin, seen.begin);
    end = std::min(end, seen.path == nullptr ? seen.end : std::min(seen.end, task.length));
  }
  end = std::max(begin, end);
  for (int64_t r = 0; r < rows; ++r) {
    std::fill(task.rows[r].part->mixed, task.rows[r].part->mixed + task.head_dim, T{0});
  }
  for (int64_t i = 0; i < task.nodes; ++i) {
    mix_alone(task, i, task.seen[i].begin, std::min(begin, task.seen[i].end));
  }
  if (begin < end) {
    mix_run(task, task.rows, rows, {begin, begin, end - begin});
  }
  for (int64_t i = 0; i < task.nodes; ++i) {
    mix_alone(task, i, std::max(end, task.seen[i].begin), task.seen[i].end);
  }
}
