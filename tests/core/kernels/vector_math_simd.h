// Bodies of vector_math_test.cpp, compiled for every instruction set; see
// core/kernels/simd/for_each_simd.h.
template <class T>
inline void exp_all(const T* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; i += Lanes<T>::kCount) {
    store<T>(to + i, exp<T>(load(from + i)));
  }
}

template <class T>
inline void tanh_all(const T* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; i += Lanes<T>::kCount) {
    store<T>(to + i, tanh<T>(load(from + i)));
  }
}
