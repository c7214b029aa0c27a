// Loads, stores and sizes of tiles; see core/kernels/simd/attention_simd.h.

/// `count` lanes; a vector where that many are left.
template <class T>
inline Vec<T> load_lanes(const T* from, int64_t count) {
  return count >= Lanes<T>::kCount ? load(from) : load_part(from, count);
}

template <class T>
inline void store_lanes(T* to, Vec<T> numbers, int64_t count) {
  if (count >= Lanes<T>::kCount) {
    store(to, numbers);
  } else {
    store_part(to, numbers, count);
  }
}

/// Numbers of the cache as the activations' type: `count` lanes, at most a vector.
template <class T>
inline Vec<T> load_cache(const T* from) {
  return load(from);
}

template <class T>
inline Vec<T> load_cache(const at::BFloat16* from) {
  typedef uint16_t Half __attribute__((vector_size(kVectorBytes / 2)));
  using Wide = typename Lanes<float>::Wide;
  return same_bits<Vec<T>>(__builtin_convertvector(load_raw<Half>(from), Wide) << 16);
}

template <class T, class Kv>
inline Vec<T> load_cache(const Kv* from, int64_t count) {
  if (count >= Lanes<T>::kCount) {
    return load_cache<T>(from);
  }
  Kv lanes[Lanes<T>::kCount] = {};
  std::copy(from, from + count, lanes);
  return load_cache<T>(lanes);
}

/// Rows and vectors of a tile of sums: as many as the registers hold.
constexpr int kRows = 6;
constexpr int kVectors = kVectorBytes == 64 ? 4 : 2;
