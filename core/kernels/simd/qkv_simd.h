// Head norms, rotation and cache write of core/kernels/qkv.cpp; see
// core/kernels/simd/for_each_simd.h.
#include "core/kernels/simd/rms_simd.h"

/// Where a rotated head goes: an array, or a column of a page of keys.
template <class T>
struct ArrayOfHead {
  T* out;
  void put(int64_t i, Vec<T> numbers) const { store<T>(out + i, numbers); }
  void put(int64_t i, T number) const { out[i] = number; }
};

template <class T, class Kv>
struct ColumnOfPage {
  Kv* out;
  int64_t page_size;
  void put(int64_t i, Vec<T> numbers) const {
    for (int lane = 0; lane < Lanes<T>::kCount; ++lane) {
      put(i + lane, numbers[lane]);
    }
  }
  void put(int64_t i, T number) const { out[i * page_size] = static_cast<Kv>(number); }
};

/// out = rotate(input * factor * scale): one head, pairs i and i + half; scale is nullptr without
/// norm.
template <bool kScaled, class T, class Out>
inline void rotate_head(const HeadTask<T>& head, T factor, const Out& out) {
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
    out.put(i, a * cos - b * sin);
    out.put(half + i, b * cos + a * sin);
  }
  for (; i < half; ++i) {
    T a = low[i];
    T b = high[i];
    if constexpr (kScaled) {
      a = a * factor * head.scale[i];
      b = b * factor * head.scale[half + i];
    }
    out.put(i, a * head.cos[i] - b * head.sin[i]);
    out.put(half + i, b * head.cos[i] + a * head.sin[i]);
  }
}

template <class T, class Out>
inline void norm_and_rotate(const HeadTask<T>& head, T eps, const Out& out) {
  if (head.scale == nullptr) {
    rotate_head<false>(head, T{1}, out);
  } else {
    rotate_head<true>(head, inverse_rms(head.input, 2 * head.half, eps), out);
  }
}

/// Values of one head as they go into a page.
template <class T, class Kv>
inline void write_value(const QkvTask<T, Kv>& task, const T* value, Kv* out) {
  const int64_t dim = task.head_dim;
  const T factor = task.value_norm ? inverse_rms(value, dim, task.eps) : T{1};
  std::transform(value, value + dim, out, [factor](T number) {
    return static_cast<Kv>(number * factor);  // * 1 changes no bit
  });
}

/// Keys and values of a node; `head` is at its first key.
template <class T, class Kv>
inline void write_keys_and_values(const QkvTask<T, Kv>& task, int64_t node, HeadTask<T> head) {
  const int64_t dim = task.head_dim;
  const int64_t slot = task.slots[node];
  const int64_t page = task.page_table[task.rows[node] * task.row_capacity + slot / task.page_size];
  const int64_t in_page = slot % task.page_size;
  const T* value = task.kv_projections == 2 ? head.input + task.kv_heads * dim : head.input;
  head.scale = task.k_scale;
  for (int64_t h = 0; h < task.kv_heads; ++h, head.input += dim, value += dim) {
    const int64_t target = (page * task.kv_heads + h) * task.page_size * dim;
    norm_and_rotate(head, task.eps,
                    ColumnOfPage<T, Kv>{task.keys + target + in_page, task.page_size});
    write_value(task, value, task.values + target + in_page * dim);
  }
}

/// Nodes begin to end.
template <class T, class Kv>
inline void qkv_nodes(const QkvTask<T, Kv>& task, int64_t begin, int64_t end) {
  const int64_t dim = task.head_dim;
  for (int64_t node = begin; node < end; ++node) {
    const T* input = task.qkv + node * task.width();
    const int64_t angle = static_cast<int64_t>(task.angles[node]) * (dim / 2);
    HeadTask<T> head{input, task.q_scale, task.cos + angle, task.sin + angle, dim / 2};
    T* queries = task.queries + node * task.heads * dim;
    for (int64_t h = 0; h < task.heads; ++h, head.input += dim, queries += dim) {
      norm_and_rotate(head, task.eps, ArrayOfHead<T>{queries});
    }
    if (task.kv_projections > 0) {
      write_keys_and_values(task, node, head);
    }
  }
}
