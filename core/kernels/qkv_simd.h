// Head norms, rotation and cache write of core/kernels/qkv.cpp; see core/kernels/for_each_simd.h.
#include "core/kernels/rms_simd.h"

/// out = rotate(input * factor * scale): one head, pairs i and i + half; scale is nullptr without
/// norm.
template <bool kScaled, class T>
inline void rotate_head(const HeadTask<T>& head, T factor, T* out) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t half = head.half;
  const T* low = head.input;
  const T* high = head.input + half;
  int64_t i = 0;
  for (; i + kCount <= half; i += kCount) {
    Vec<T> a = load(low + i);
    Vec<T> b = load(high + i);
    if constexpr (kScaled) {
      a = a * factor * load(head.scale + i);
      b = b * factor * load(head.scale + half + i);
    }
    const Vec<T> cos = load(head.cos + i);
    const Vec<T> sin = load(head.sin + i);
    store<T>(out + i, a * cos - b * sin);
    store<T>(out + half + i, b * cos + a * sin);
  }
  for (; i < half; ++i) {
    T a = low[i];
    T b = high[i];
    if constexpr (kScaled) {
      a = a * factor * head.scale[i];
      b = b * factor * head.scale[half + i];
    }
    out[i] = a * head.cos[i] - b * head.sin[i];
    out[half + i] = b * head.cos[i] + a * head.sin[i];
  }
}

template <class T>
inline void norm_and_rotate(const HeadTask<T>& head, T eps, T* out) {
  if (head.scale == nullptr) {
    rotate_head<false>(head, T{1}, out);
  } else {
    rotate_head<true>(head, inverse_rms(head.input, 2 * head.half, eps), out);
  }
}

/// Nodes begin to end.
template <class T>
inline void qkv_nodes(const QkvTask<T>& task, int64_t begin, int64_t end) {
  const int64_t dim = task.head_dim;
  for (int64_t node = begin; node < end; ++node) {
    const T* input = task.qkv + node * (task.heads + 2 * task.kv_heads) * dim;
    const int64_t angle = static_cast<int64_t>(task.positions[node]) * (dim / 2);
    HeadTask<T> head{input, task.q_scale, task.cos + angle, task.sin + angle, dim / 2};
    T* queries = task.queries + node * task.heads * dim;
    for (int64_t h = 0; h < task.heads; ++h, head.input += dim, queries += dim) {
      norm_and_rotate(head, task.eps, queries);
    }
    head.scale = task.k_scale;
    const int64_t slot = task.slots[node];
    const int64_t page =
        task.page_table[task.rows[node] * task.row_capacity + slot / task.page_size];
    int64_t target = (page * task.kv_heads * task.page_size + slot % task.page_size) * dim;
    const T* value = head.input + task.kv_heads * dim;
    for (int64_t h = 0; h < task.kv_heads; ++h) {
      norm_and_rotate(head, task.eps, task.keys + target);
      std::memcpy(task.values + target, value, static_cast<size_t>(dim) * sizeof(T));
      head.input += dim;
      value += dim;
      target += task.page_size * dim;
    }
  }
}
