// Head norms, rotation and cache write of core/kernels/qkv.cpp; see
// core/kernels/simd/for_each_simd.h.
#include "core/kernels/simd/rms_simd.h"

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
inline void norm_and_rotate(const QkvTask<T>& task, const HeadTask<T>& head, T* out) {
  if (head.scale == nullptr) {
    rotate_head<false>(head, T{1}, out);
  } else {
    rotate_head<true>(head, inverse_rms(head.input, 2 * head.half, task.eps), out);
  }
  if (task.rotates) {
    hadamard(out, 2 * head.half);
  }
}

/// A head of values as it goes into a page: in `head`, where it is normed or multiplied.
template <class T>
inline const T* value_to_store(const QkvTask<T>& task, const T* value, T* head) {
  if (!task.value_norm && !task.rotates) {
    return value;
  }
  const T factor = task.value_norm ? inverse_rms(value, task.head_dim, task.eps) : T{1};
  std::transform(value, value + task.head_dim, head,
                 [factor](T number) { return number * factor; });
  if (task.rotates) {
    hadamard(head, task.head_dim);
  }
  return head;
}

/// Where the first element of a node's key or value lies: `token` elements for each token of the
/// page before it.
template <class T>
inline char* place_in_pages(const QkvTask<T>& task, const WrittenPages& pages, char* numbers,
                            int64_t node, int64_t kv_head, int64_t token) {
  const int64_t slot = task.slots[node];
  const int64_t entry = task.rows[node] * task.table_stride + slot / task.page_size;
  const int64_t head = pages.page_table[entry] * task.kv_heads + kv_head;
  return numbers + (head * task.page_size * pages.width + slot % task.page_size * token) *
                       pages.element_bytes;
}

/// Keys and values of a node; `input` is at its first key, `rotated` holds a head.
template <class T>
inline void write_keys_and_values(const QkvTask<T>& task, int64_t node, HeadTask<T> input,
                                  T* rotated) {
  const int64_t dim = task.head_dim;
  const T* value = task.kv_projections == 2 ? input.input + task.kv_heads * dim : input.input;
  input.scale = task.k_scale;
  for (int64_t h = 0; h < task.kv_heads; ++h, input.input += dim, value += dim) {
    norm_and_rotate(task, input, rotated);
    for (const WrittenPages& pages : task.forms) {
      if (kv_key_group(pages.format) > 1) {
        continue;  // rounded out of the exact pages, when all of a group is there
      }
      write_head(pages.format, rotated, dim,
                 {place_in_pages(task, pages, pages.keys, node, h, 1), task.page_size,
                  task.view->key_levels(h)});
    }
    const T* stored = value_to_store(task, value, rotated);
    for (const WrittenPages& pages : task.forms) {
      write_head(pages.format, stored, dim,
                 {place_in_pages(task, pages, pages.values, node, h, pages.width), 1,
                  task.view->value_levels(h)});
    }
  }
}

/// Nodes begin to end; `rotated` is memory of a head.
template <class T>
inline void qkv_nodes(const QkvTask<T>& task, int64_t begin, int64_t end, T* rotated) {
  const int64_t dim = task.head_dim;
  for (int64_t node = begin; node < end; ++node) {
    const T* input = task.qkv + node * task.input_width();
    const int64_t angle = static_cast<int64_t>(task.angles[node]) * (dim / 2);
    HeadTask<T> head{input, task.q_scale, task.cos + angle, task.sin + angle, dim / 2};
    T* queries = task.queries + node * task.heads * dim;
    for (int64_t h = 0; h < task.heads; ++h, head.input += dim, queries += dim) {
      norm_and_rotate(task, head, queries);
    }
    if (task.kv_projections > 0) {
      write_keys_and_values(task, node, head, rotated);
    }
  }
}
