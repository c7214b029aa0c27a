// Attention of one node and one kv head; see core/kernels/attention.cpp and for_each_simd.h.
//
// The keys that a node sees are listed in the order of their slots first; sums run over that list,
// so they depend neither on the other nodes of the forward nor on which keys are pending.

/// Partial sums of q_h . k_j for H query heads and K keys from j on, at [j * H + h].
template <int H, int K, class T>
inline void dot_keys(const AttentionTask<T>& task, const T* queries, int64_t j,
                     Vec<T> (&parts)[H * K]) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t dim = task.head_dim;
  const T* keys[K];
  for (int i = 0; i < K; ++i) {
    keys[i] = task.keys + task.offsets[j + i];
  }
  for (int i = 0; i < H * K; ++i) {
    parts[i] = splat<T>(0);
  }
  int64_t d = 0;
  for (; d + kCount <= dim; d += kCount) {
#pragma GCC unroll 16
    for (int i = 0; i < K; ++i) {
      const Vec<T> k = load(keys[i] + d);
#pragma GCC unroll 4
      for (int h = 0; h < H; ++h) {
        parts[i * H + h] += k * load(queries + h * dim + d);
      }
    }
  }
  if (d < dim) {
    for (int i = 0; i < K; ++i) {
      const Vec<T> k = load_part(keys[i] + d, dim - d);
      for (int h = 0; h < H; ++h) {
        parts[i * H + h] += k * load_part(queries + h * dim + d, dim - d);
      }
    }
  }
}

/// scores[h][j] = q_h . k_j for H query heads.
template <int H, class T>
inline void score_keys(const AttentionTask<T>& task, const T* queries, T* scores) {
  constexpr int kCount = Lanes<T>::kCount;
  int64_t j = 0;
  if constexpr (kCount >= H) {
    constexpr int kKeys = kCount / H;
    for (; j + kKeys <= task.visible; j += kKeys) {
      Vec<T> parts[kCount];
      dot_keys<H, kKeys>(task, queries, j, parts);
      T lanes[kCount];
      store<T>(lanes, sums<T>(parts));
#pragma GCC unroll 16
      for (int i = 0; i < kCount; ++i) {
        scores[i % H * task.stride + j + i / H] = lanes[i];
      }
    }
  }
  for (; j < task.visible; ++j) {
    Vec<T> parts[H];
    dot_keys<H, 1>(task, queries, j, parts);
    for (int h = 0; h < H; ++h) {
      scores[h * task.stride + j] = sum<T>(parts[h]);
    }
  }
}

template <class T>
inline Vec<T> finish_scores(const AttentionTask<T>& task, Vec<T> scores) {
  scores = scores * task.scale;
  return task.soft_cap > 0 ? tanh<T>(scores / task.soft_cap) * task.soft_cap : scores;
}

/// Turns one head's scores into exp(score - largest) and returns their sum. Lanes behind the last
/// score are garbage going in and zero coming out.
template <class T>
inline T soften(const AttentionTask<T>& task, T* scores) {
  constexpr int kCount = Lanes<T>::kCount;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const int64_t visible = task.visible;
  const int64_t padded = (visible + kCount - 1) / kCount * kCount;
  Vec<T> largest = splat<T>(-kInfinity);
  for (int64_t j = visible; j < padded; ++j) {
    scores[j] = 0;
  }
  for (int64_t j = 0; j < padded; j += kCount) {
    store<T>(scores + j, finish_scores<T>(task, load(scores + j)));
  }
  for (int64_t j = 0; task.bias != nullptr && j < visible; ++j) {
    const int64_t column = task.columns[j];
    scores[j] += column < task.bias_columns ? static_cast<T>(task.bias[column]) : T{0};
  }
  for (int64_t j = visible; j < padded; ++j) {
    scores[j] = -kInfinity;
  }
  for (int64_t j = 0; j < padded; j += kCount) {
    largest = maximum<T>(load(scores + j), largest);
  }
  T top = largest[0];
  for (int i = 1; i < kCount; ++i) {
    top = largest[i] > top ? largest[i] : top;
  }
  Vec<T> total = splat<T>(0);
  for (int64_t j = 0; j < padded; j += kCount) {
    const Vec<T> weights = exp<T>(load(scores + j) - top);
    store<T>(scores + j, weights);
    total += weights;
  }
  return sum<T>(total);
}

/// out[h] = sum of weights[h][j] v_j over the dimensions d to d + kVectors * lanes.
template <int H, int kVectors, class T>
inline void mix_values(const AttentionTask<T>& task, const T* values, const T* weights,
                       Vec<T> (&mixed)[H][kVectors]) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int64_t j = 0; j < task.visible; ++j) {
    const T* value = values + task.offsets[j];
    Vec<T> v[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      v[i] = load(value + i * kCount);
    }
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const T weight = weights[h * task.stride + j];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        mixed[h][i] += v[i] * weight;
      }
    }
  }
}

template <int H, class T>
inline void mix_all_values(const AttentionTask<T>& task, const T* values, const T* weights,
                           const T* inverse_totals, T* out) {
  constexpr int64_t kCount = Lanes<T>::kCount;
  constexpr int kVectors = kVectorBytes == 64 ? 4 : 2;
  const int64_t dim = task.head_dim;
  int64_t d = 0;
  for (; d + kVectors * kCount <= dim; d += kVectors * kCount) {
    Vec<T> mixed[H][kVectors] = {};
    mix_values<H, kVectors>(task, values + d, weights, mixed);
    for (int h = 0; h < H; ++h) {
      for (int i = 0; i < kVectors; ++i) {
        store<T>(out + h * dim + d + i * kCount, mixed[h][i] * inverse_totals[h]);
      }
    }
  }
  for (; d + kCount <= dim; d += kCount) {
    Vec<T> mixed[H][1] = {};
    mix_values<H, 1>(task, values + d, weights, mixed);
    for (int h = 0; h < H; ++h) {
      store<T>(out + h * dim + d, mixed[h][0] * inverse_totals[h]);
    }
  }
  for (; d < dim; ++d) {
    for (int h = 0; h < H; ++h) {
      T mixed = 0;
      for (int64_t j = 0; j < task.visible; ++j) {
        mixed += values[task.offsets[j] + d] * weights[h * task.stride + j];
      }
      out[h * dim + d] = mixed * inverse_totals[h];
    }
  }
}

template <int H, class T>
inline void attend_heads(const AttentionTask<T>& task, int64_t first) {
  T* scores = task.scores;
  score_keys<H>(task, task.queries + first * task.head_dim, scores);
  T inverse_totals[H];
  for (int h = 0; h < H; ++h) {
    inverse_totals[h] = 1 / soften(task, scores + h * task.stride);
  }
  mix_all_values<H>(task, task.values, scores, inverse_totals, task.out + first * task.head_dim);
}

/// All query heads that read one kv head.
template <class T>
inline void attend(const AttentionTask<T>& task) {
  int64_t head = 0;
  for (; head + 4 <= task.group; head += 4) {
    attend_heads<4>(task, head);
  }
  for (; head + 2 <= task.group; head += 2) {
    attend_heads<2>(task, head);
  }
  for (; head < task.group; ++head) {
    attend_heads<1>(task, head);
  }
}
