// Element-wise passes of core/kernels/elementwise.cpp; see core/kernels/simd/for_each_simd.h.

template <class T>
inline void add_values(const T* input, T* sum, int64_t size) {
  constexpr int kCount = Lanes<T>::kCount;
  int64_t i = 0;
  for (; i + kCount <= size; i += kCount) {
    store<T>(sum + i, load(sum + i) + load(input + i));
  }
  for (; i < size; ++i) {
    sum[i] += input[i];
  }
}

template <class T>
inline void scale_values(const T* input, T factor, T* out, int64_t size) {
  constexpr int kCount = Lanes<T>::kCount;
  int64_t i = 0;
  for (; i + kCount <= size; i += kCount) {
    store<T>(out + i, load(input + i) * factor);
  }
  for (; i < size; ++i) {
    out[i] = input[i] * factor;
  }
}
