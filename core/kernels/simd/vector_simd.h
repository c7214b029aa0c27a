// Vectors as wide as the registers of one instruction set, and functions of them. Included inside a
// namespace by core/kernels/simd/for_each_simd.h: hence no guard.

/// Types of as many numbers as a register holds of T.
template <class T>
struct Lanes;

template <>
struct Lanes<float> {
  static constexpr int kCount = kVectorBytes / 4;
  typedef float Vec __attribute__((vector_size(kVectorBytes)));
  typedef int32_t Int __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t Wide __attribute__((vector_size(kVectorBytes)));
  static constexpr float kLn2High = 0.693145752F;  // few bits: k * kLn2High is exact
  static constexpr float kLn2Low = 1.42860677e-6F;
  static constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float kLowest = -87.0F;      // exp is taken as 0 below
  static constexpr float kHighest = 88.0F;      // and as infinite above
  static constexpr int kExponentBias = 127;
  static constexpr int kMantissaBits = 23;
};

template <>
struct Lanes<double> {
  static constexpr int kCount = kVectorBytes / 8;
  typedef double Vec __attribute__((vector_size(kVectorBytes)));
  typedef int64_t Int __attribute__((vector_size(kVectorBytes)));
  static constexpr double kLn2High = 0.69314718036912382;
  static constexpr double kLn2Low = 1.9082149292705877e-10;
  static constexpr double kRound = 6755399441055744.0;
  static constexpr double kLowest = -708.0;
  static constexpr double kHighest = 709.0;
  static constexpr int kExponentBias = 1023;
  static constexpr int kMantissaBits = 52;
};

template <class T>
using Vec = typename Lanes<T>::Vec;

template <class To, class From>
inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class V>
inline V load_raw(const void* from) {
  V vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

template <class T>
inline Vec<T> splat(T value) {
  return value - Vec<T>{};  // x - 0 is x for all x, so nothing is computed; x + 0 is not
}

template <class T>
inline Vec<T> load(const T* from) {
  return load_raw<Vec<T>>(from);
}

template <class T>
inline void store(T* to, Vec<T> vector) {
  std::memcpy(to, &vector, sizeof vector);
}

/// The first `count` lanes from memory, the others zero.
template <class T>
inline Vec<T> load_part(const T* from, int64_t count) {
  T lanes[Lanes<T>::kCount] = {};
  std::memcpy(lanes, from, static_cast<size_t>(count) * sizeof(T));
  return load(lanes);
}

template <class T>
inline void store_part(T* to, Vec<T> vector, int64_t count) {
  std::memcpy(to, &vector, static_cast<size_t>(count) * sizeof(T));
}

/// a * b + c, rounded once. Intrinsics, since a compiler contracts a product and a sum only when it
/// optimises.
template <class T>
inline Vec<T> fused(Vec<T> a, Vec<T> b, Vec<T> c) {
#if defined(__x86_64__)
  if constexpr (kVectorBytes == 64 && sizeof(T) == 4) {
    return _mm512_fmadd_ps(a, b, c);
  } else if constexpr (kVectorBytes == 64) {
    return _mm512_fmadd_pd(a, b, c);
  } else if constexpr (kVectorBytes == 32 && sizeof(T) == 4) {
    return _mm256_fmadd_ps(a, b, c);
  } else if constexpr (kVectorBytes == 32) {
    return _mm256_fmadd_pd(a, b, c);
  }
#endif
  for (int lane = 0; lane < Lanes<T>::kCount; ++lane) {
    c[lane] = std::fma(a[lane], b[lane], c[lane]);
  }
  return c;
}

/// Where lane `lane` of fold's result comes from in the concatenation of its operands.
template <int kHalf, int kCount>
constexpr int folded_lane(int lane) {
  const int in_operand = lane % (kCount / 2);
  return lane / (kCount / 2) * kCount + in_operand / kHalf * 2 * kHalf + in_operand % kHalf;
}

/// Folds two vectors of groups of 2 * kHalf lanes: adds the upper half of each group to its lower
/// half and returns all the groups, now of kHalf lanes, those of x first.
template <int kHalf, class V, size_t... kLane>
inline V fold(V x, V y, std::index_sequence<kLane...>) {
  constexpr int kCount = sizeof...(kLane);
  return __builtin_shufflevector(x, y, folded_lane<kHalf, kCount>(kLane)...) +
         __builtin_shufflevector(x, y, (folded_lane<kHalf, kCount>(kLane) + kHalf)...);
}

template <int kHalf, class V, int kCount>
inline void fold_all(V (&vectors)[kCount]) {
#pragma GCC unroll 8
  for (int i = 0; i < kHalf; ++i) {
    vectors[i] =
        fold<kHalf>(vectors[2 * i], vectors[2 * i + 1], std::make_index_sequence<kCount>());
  }
  if constexpr (kHalf > 1) {
    fold_all<kHalf / 2>(vectors);
  }
}

/// Lane i of the result is the sum of the lanes of vector i, each summed as `sum` does. Transposing
/// and adding at once costs a few instructions a sum. Overwrites the vectors.
template <class T>
inline Vec<T> sums(Vec<T> (&vectors)[Lanes<T>::kCount]) {
  fold_all<Lanes<T>::kCount / 2>(vectors);
  return vectors[0];
}

/// Sum of the lanes, always in the same order: halves are added until one lane is left.
template <class T>
inline T sum(Vec<T> vector) {
  T lanes[Lanes<T>::kCount];
  store(lanes, vector);
#pragma GCC unroll 4
  for (int half = Lanes<T>::kCount / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      lanes[i] += lanes[i + half];
    }
  }
  return lanes[0];
}

template <class T>
inline Vec<T> maximum(Vec<T> a, Vec<T> b) {
  return a > b ? a : b;
}

/// The largest lane.
template <class T>
inline T largest(Vec<T> vector) {
  T lanes[Lanes<T>::kCount];
  store(lanes, vector);
#pragma GCC unroll 4
  for (int half = Lanes<T>::kCount / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      lanes[i] = lanes[i + half] > lanes[i] ? lanes[i + half] : lanes[i];
    }
  }
  return lanes[0];
}

/// exp(x) - 2^k = 2^k * tail, with 2^k returned in `power`; both to about one unit in the last
/// place. The argument lies within kLowest and kHighest.
template <class T>
inline Vec<T> exp_parts(Vec<T> x, Vec<T>& power) {
  using L = Lanes<T>;
  const Vec<T> shifted = x * static_cast<T>(1.4426950408889634) + L::kRound;
  const Vec<T> k = shifted - L::kRound;
  const Vec<T> r = (x - k * L::kLn2High) - k * L::kLn2Low;  // |r| <= ln(2) / 2
  constexpr int kTerms = sizeof(T) == 4 ? 7 : 13;
  constexpr double kInverseFactorials[] = {1.0,
                                           1.0 / 2,
                                           1.0 / 6,
                                           1.0 / 24,
                                           1.0 / 120,
                                           1.0 / 720,
                                           1.0 / 5040,
                                           1.0 / 40320,
                                           1.0 / 362880,
                                           1.0 / 3628800,
                                           1.0 / 39916800,
                                           1.0 / 479001600,
                                           1.0 / 6227020800.0};
  Vec<T> series = splat(static_cast<T>(kInverseFactorials[kTerms - 1]));
#pragma GCC unroll 13
  for (int i = kTerms - 2; i >= 1; --i) {
    series = series * r + static_cast<T>(kInverseFactorials[i]);
  }
  // The lowest bits of `shifted` are those of k; what is above them leaves with the shift.
  power = same_bits<Vec<T>>((same_bits<typename L::Int>(shifted) + L::kExponentBias)
                            << L::kMantissaBits);
  return (series * r) * r + r;
}

template <class T>
inline Vec<T> clamp_exp(Vec<T> x) {
  using L = Lanes<T>;
  x = x < L::kLowest ? splat<T>(L::kLowest) : x;
  return x > L::kHighest ? splat<T>(L::kHighest) : x;
}

template <class T>
inline Vec<T> exp(Vec<T> x) {
  using L = Lanes<T>;
  Vec<T> power;
  const Vec<T> tail = exp_parts<T>(clamp_exp<T>(x), power);
  Vec<T> result = tail * power + power;
  result = x < L::kLowest ? splat<T>(0) : result;
  return x > L::kHighest ? splat<T>(std::numeric_limits<T>::infinity()) : result;
}

/// tanh(x) = e / (e + 2) with e = exp(2x) - 1, which is accurate around zero too.
template <class T>
inline Vec<T> tanh(Vec<T> x) {
  constexpr T kSaturated = sizeof(T) == 4 ? 10 : 20;  // 1 - tanh is less than half a unit from here
  Vec<T> bounded = x > kSaturated ? splat<T>(kSaturated) : x;
  bounded = bounded < -kSaturated ? splat<T>(-kSaturated) : bounded;
  Vec<T> power;
  const Vec<T> tail = exp_parts<T>(bounded + bounded, power);
  const Vec<T> e = tail * power + (power - 1);
  return e / (e + 2);
}
