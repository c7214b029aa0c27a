// Soft caps of core/kernels/soft_cap.cpp; see core/kernels/simd/for_each_simd.h.

template <class T>
inline void cap_values(T* values, int64_t size, T cap) {
  constexpr int kCount = Lanes<T>::kCount;
  int64_t i = 0;
  for (; i + kCount <= size; i += kCount) {
    store<T>(values + i, tanh<T>(load(values + i) / cap) * cap);
  }
  if (i < size) {
    store_part<T>(values + i, tanh<T>(load_part(values + i, size - i) / cap) * cap, size - i);
  }
}
