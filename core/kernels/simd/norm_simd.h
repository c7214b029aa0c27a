// RMSNorm of core/kernels/norm.cpp; see core/kernels/simd/for_each_simd.h.

#include "core/kernels/simd/rms_simd.h"

/// Rows begin to end: out = normed, or += normed when kAdd.
template <bool kAdd, class T>
inline void norm_rows(const NormTask<T>& task, int64_t begin, int64_t end) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int64_t row = begin; row < end; ++row) {
    const T* input = task.input + row * task.size;
    T* out = task.out + row * task.size;
    const T inverse = inverse_rms(input, task.size, task.eps);
    int64_t i = 0;
    for (; i + kCount <= task.size; i += kCount) {
      const Vec<T> normed = load(input + i) * inverse * load(task.scale + i);
      store(out + i, kAdd ? load(out + i) + normed : normed);
    }
    for (; i < task.size; ++i) {
      const T normed = input[i] * inverse * task.scale[i];
      out[i] = kAdd ? out[i] + normed : normed;
    }
  }
}
