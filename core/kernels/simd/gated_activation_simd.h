// Gated activations of core/kernels/gated_activation.cpp; see core/kernels/simd/for_each_simd.h.

/// gelu_tanh(x) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): the same as with tanh,
/// without its cancellation for negative x.
template <class T>
inline Vec<T> gelu_tanh(Vec<T> x) {
  constexpr T kTwoRootTwoOverPi = static_cast<T>(1.5957691216057308);
  const Vec<T> u = x * (x * x * static_cast<T>(0.044715) + 1) * -kTwoRootTwoOverPi;
  return x / (exp<T>(u) + 1);
}

/// silu(x) = x / (1 + exp(-x))
template <class T>
inline Vec<T> silu(Vec<T> x) {
  return x / (exp<T>(-x) + 1);
}

/// Tiles begin to end: a tile is part of a row.
template <class T, Vec<T> (*kActivation)(Vec<T>)>
inline void gated_tiles(const GatedTask<T>& task, int64_t begin, int64_t end) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t row = tile / task.parts;
    const int64_t first = tile % task.parts * kTileNumbers;
    const int64_t size = std::min(kTileNumbers, task.size - first);
    const T* gate = task.gate_up + row * 2 * task.size + first;
    const T* up = gate + task.size;
    T* out = task.out + row * task.size + first;
    int64_t i = 0;
    for (; i + kCount <= size; i += kCount) {
      store<T>(out + i, kActivation(load(gate + i)) * load(up + i));
    }
    if (i < size) {
      const Vec<T> part = kActivation(load_part(gate + i, size - i)) * load_part(up + i, size - i);
      store_part<T>(out + i, part, size - i);
    }
  }
}

template <class T>
inline void geglu_tiles(const GatedTask<T>& task, int64_t begin, int64_t end) {
  gated_tiles<T, gelu_tanh<T>>(task, begin, end);
}

template <class T>
inline void swiglu_tiles(const GatedTask<T>& task, int64_t begin, int64_t end) {
  gated_tiles<T, silu<T>>(task, begin, end);
}
