// Scores q.k of a chunk, vectors of neighbouring keys times rows; see
// core/kernels/simd/attention_simd.h.

/// Neighbouring keys of a page, at most a vector.
template <class Kv>
struct KeyVector {
  const Kv* keys;  ///< key i at keys[i], its element j at keys[i + j * page_size]
  int64_t count;   ///< keys until the page ends
  int64_t column;  ///< of the scores
  int64_t token;   ///< number of key 0 in its page
};

/// Bytes of `count` neighbouring keys.
template <bool kWhole, class T, class Kv>
inline HalfBits load_bytes(const Kv* from, int64_t count) {
  return __builtin_convertvector(
      kWhole ? load_raw<Bytes>(from) : load_raw<Bytes>(PartOfVector<T, Kv>(from, count).elements),
      HalfBits);
}

/// The signed four bits of dimension `dim` in bytes of pairs.
template <class T>
inline Vec<T> nibbles_of(HalfBits pairs, int64_t dim) {
  return signed_nibbles(__builtin_convertvector(pairs, typename Lanes<T>::Int) >> (dim % 2 * 4));
}

/// Dimension `dim` of neighbouring keys.
template <bool kWhole, class T, class Kv>
inline Vec<T> load_keys(const ChunkTask<T, Kv>& task, const KeyVector<Kv>& vector, int64_t dim) {
  const auto row = [&](int64_t i) { return vector.keys + i * task.page_size; };
  const auto bytes = [&](int64_t i) { return load_bytes<kWhole, T>(row(i), vector.count); };
  if constexpr (std::is_same_v<Kv, Q4Codes>) {
    return nibbles_of<T>(bytes(dim / 2), dim);
  } else if constexpr (std::is_same_v<Kv, HalfCodes>) {
    const Vec<T> upper = nibbles_of<T>(bytes(dim / 2), dim);
    const int64_t lower = lower_half_offset(task.head_dim) + dim / 2;
    return upper * 16.0F + nibbles_of<T>(bytes(lower), dim);
  } else if constexpr (std::is_same_v<Kv, Q3Codes>) {
    const int64_t block = dim / kQ3Block * 3;
    const int64_t i = dim % kQ3Block;
    const HalfBits codes = (bytes(block + i / 4) >> (i % 4 * 2) & 3) | (bytes(block + 2) >> i & 1)
                                                                           << 2;
    return levels_of(__builtin_convertvector(codes, typename Lanes<T>::Int), task.key_levels);
  } else if constexpr (kIsRanged<Kv>) {
    constexpr int kBits = kRangedBits<Kv>;
    const HalfBits codes = bytes(dim * kBits / 8) >> (dim * kBits % 8) & ((1 << kBits) - 1);
    return __builtin_convertvector(__builtin_convertvector(codes, typename Lanes<T>::Int), Vec<T>);
  } else {
    return kWhole ? load_cache<T>(row(dim))
                  : load_cache<T>(PartOfVector<T, Kv>(row(dim), vector.count).elements);
  }
}

/// The scales of the group of dimension `dim`, whose bytes lie in two rows of the page.
template <bool kWhole, class T, class Kv>
inline Vec<T> load_key_scales(const ChunkTask<T, Kv>& task, const KeyVector<Kv>& vector,
                              int64_t dim) {
  const int64_t row = elements_of<Kv>(task.head_dim) + dim / kKvGroup * 2;
  const auto load_row = [&](int64_t i) {
    return load_bytes<kWhole, T>(vector.keys + (row + i) * task.page_size, vector.count);
  };
  return widen_halves(load_row(0) | load_row(1) << 8) * kScaleUnit<Kv>;
}

/// What the codes of keys lie between, of kRangesOfRow dimensions.
struct KeyRanges {
  float least[kRangesOfRow], steps[kRangesOfRow];
};

/// Loads the ranges from dimension `dim` on of the group that a vector's keys belong to.
template <class T, class Kv>
inline void load_ranges(const ChunkTask<T, Kv>& task, const KeyVector<Kv>& vector, int64_t dim,
                        KeyRanges& ranges) {
  const int64_t row = elements_of<Kv>(task.head_dim) + dim / kRangesOfRow;
  const int64_t rows = (task.head_dim + kRangesOfRow - 1) / kRangesOfRow;
  const Kv* least = vector.keys - vector.token % kKeyGroup + row * task.page_size;
  const Kv* steps = least + rows * task.page_size;
  for (int64_t i = 0; i < kRangesOfRow; i += Lanes<T>::kCount) {
    store<T>(ranges.least + i, widen_halves(load_raw<HalfBits>(least + 2 * i)));
    store<T>(ranges.steps + i, widen_halves(load_raw<HalfBits>(steps + 2 * i)));
  }
}

/// scores[r][column + i] = q_r . k_i for R rows and P vectors of keys.
template <int R, int P, bool kWhole, class T, class Kv>
inline void score_tile(const ChunkTask<T, Kv>& task, const TileRow<T>* rows,
                       const KeyVector<Kv>* vectors) {
  const T* queries[R];
  Vec<T> sums[R][P] = {};
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    queries[r] = rows[r].query;
  }
  const int64_t group = kHasScales<Kv> ? kKvGroup : kIsRanged<Kv> ? kRangesOfRow : task.head_dim;
  for (int64_t first = 0; first < task.head_dim; first += group) {
    Vec<T> scales[P];
    KeyRanges ranges[kIsRanged<Kv> ? P : 1];
    if constexpr (kIsRanged<Kv>) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        load_ranges(task, vectors[p], first, ranges[p]);
      }
    }
    if constexpr (kHasScales<Kv>) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        scales[p] = load_key_scales<kWhole>(task, vectors[p], first);
      }
    }
    const int64_t end = std::min(first + group, task.head_dim);
    for (int64_t d = first; d < end; ++d) {
      Vec<T> k[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        k[p] = load_keys<kWhole, T>(task, vectors[p], d);
        if constexpr (kHasScales<Kv>) {
          k[p] *= scales[p];
        } else if constexpr (kIsRanged<Kv>) {
          k[p] = k[p] * splat(ranges[p].steps[d - first]) + splat(ranges[p].least[d - first]);
        }
      }
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const Vec<T> q = splat(queries[r][d]);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          sums[r][p] = fused<T>(k[p], q, sums[r][p]);
        }
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      store<T>(rows[r].scores + vectors[p].column, sums[r][p]);
    }
  }
}

/// `rows` rows, at most R.
template <int R, int P, bool kWhole, class T, class Kv>
inline void score_some_rows(const ChunkTask<T, Kv>& task, const TileRow<T>* first, int64_t rows,
                            const KeyVector<Kv>* vectors) {
  if constexpr (R > 1) {
    if (rows < R) {
      score_some_rows<R - 1, P, kWhole>(task, first, rows, vectors);
      return;
    }
  }
  score_tile<R, P, kWhole>(task, first, vectors);
}

/// All rows, in tiles of about the same size.
template <int P, bool kWhole, class T, class Kv>
inline void score_vectors(const ChunkTask<T, Kv>& task, const KeyVector<Kv>* vectors) {
  const int64_t rows = task.nodes * task.group;
  const int64_t tiles = (rows + kRows - 1) / kRows;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t first = i * rows / tiles;
    score_some_rows<kRows, P, kWhole>(task, task.rows + first, (i + 1) * rows / tiles - first,
                                      vectors);
  }
}

/// Raw scores of the slots from first_slot to end_slot for all rows, where they are seen or not.
template <class T, class Kv>
inline void score_rows(const ChunkTask<T, Kv>& task) {
  constexpr int kCount = Lanes<T>::kCount;
  KeyVector<Kv> vectors[kVectors];
  int ready = 0;
  for (int64_t slot = task.first_slot; slot < task.end_slot;) {
    const int64_t in_page = slot % task.page_size;
    const int64_t count = std::min<int64_t>(kCount, task.page_size - in_page);
    vectors[ready] = {task.keys + task.page(slot) + in_page, count, slot - task.first_slot,
                      in_page};
    slot += count;
    if (count < kCount) {  // what it writes behind its keys is overwritten by the next vector
      score_vectors<1, false>(task, vectors + ready);
    } else if (++ready == kVectors) {
      score_vectors<kVectors, true>(task, vectors);
      ready = 0;
    }
  }
  for (int p = 0; p < ready; ++p) {
    score_vectors<1, true>(task, vectors + p);
  }
}
