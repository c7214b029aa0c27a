// GeGLU of core/kernels/geglu.cpp; see core/kernels/for_each_simd.h.

/// gelu_tanh(x) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): the same as with tanh,
/// without its cancellation for negative x.
template <class T>
inline Vec<T> gelu_tanh(Vec<T> x) {
  constexpr T kTwoRootTwoOverPi = static_cast<T>(1.5957691216057308);
  const Vec<T> u = x * (x * x * static_cast<T>(0.044715) + 1) * -kTwoRootTwoOverPi;
  return x / (exp<T>(u) + 1);
}

template <class T>
inline void geglu_rows(const GegluTask<T>& task) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t size = task.size;
  for (int64_t row = 0; row < task.rows; ++row) {
    const T* gate = task.gate_up + row * 2 * size;
    const T* up = gate + size;
    T* out = task.out + row * size;
    int64_t i = 0;
    for (; i + kCount <= size; i += kCount) {
      store<T>(out + i, gelu_tanh<T>(load(gate + i)) * load(up + i));
    }
    if (i < size) {
      const Vec<T> part = gelu_tanh<T>(load_part(gate + i, size - i)) * load_part(up + i, size - i);
      store_part<T>(out + i, part, size - i);
    }
  }
}
