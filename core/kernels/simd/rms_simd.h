// Included inside a namespace by norm_simd.h and qkv_simd.h; see core/kernels/simd/for_each_simd.h.

/// 1 / sqrt(mean of squares + eps).
template <class T>
inline T inverse_rms(const T* input, int64_t size, T eps) {
  constexpr int kCount = Lanes<T>::kCount;
  Vec<T> squares = {};
  int64_t i = 0;
  for (; i + kCount <= size; i += kCount) {
    const Vec<T> x = load(input + i);
    squares += x * x;
  }
  if (i < size) {
    const Vec<T> x = load_part(input + i, size - i);
    squares += x * x;
  }
  return 1 / std::sqrt(sum<T>(squares) / static_cast<T>(size) + eps);
}
