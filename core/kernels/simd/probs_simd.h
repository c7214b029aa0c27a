// Passes of core/kernels/probs.cpp; see core/kernels/simd/for_each_simd.h.

template <class T>
inline void largest(std::span<const T> values, double& result) {
  using Int = typename Lanes<T>::Int;
  constexpr size_t kCount = Lanes<T>::kCount;
  Vec<T> best = splat(-std::numeric_limits<T>::infinity());
  Int unordered = {};
  size_t i = 0;
  for (; i + kCount <= values.size(); i += kCount) {
    const Vec<T> lanes = load(values.data() + i);
    unordered |= lanes != lanes;
    best = maximum<T>(lanes, best);
  }
  bool has_nan = false;
  T most = best[0];
  for (size_t lane = 0; lane < kCount; ++lane) {
    has_nan |= unordered[lane] != 0;
    most = best[lane] > most ? best[lane] : most;
  }
  for (; i < values.size(); ++i) {
    has_nan |= std::isnan(values[i]);
    most = values[i] > most ? values[i] : most;
  }
  result = has_nan ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(most);
}

template <class T>
inline void largest_in_blocks(std::span<const T> scores, std::span<double> maxima) {
  for (size_t begin = 0, block = 0; begin < scores.size(); begin += kProbsBlock, ++block) {
    largest(scores.subspan(begin, std::min(kProbsBlock, scores.size() - begin)), maxima[block]);
  }
}

inline Vec<double> load_scores(const double* from) { return load(from); }

inline Vec<double> load_scores(const float* from) {
  typedef float Half __attribute__((vector_size(kVectorBytes / 2)));
  return __builtin_convertvector(load_raw<Half>(from), Vec<double>);
}

/// a * b + c; the baseline has no instruction that rounds only once.
inline Vec<double> multiply_add(Vec<double> a, Vec<double> b, Vec<double> c) {
  if constexpr (kVectorBytes > 16) {
    return fused<double>(a, b, c);
  } else {
    return a * b + c;
  }
}

#if defined(__x86_64__)
/// 2^(i / 16)
alignas(64) constexpr double kSixteenths[16] = {1.0,
                                                1.0442737824274138,
                                                1.0905077326652577,
                                                1.1387886347566916,
                                                1.189207115002721,
                                                1.241857812073484,
                                                1.2968395546510096,
                                                1.3542555469368927,
                                                1.4142135623730951,
                                                1.4768261459394993,
                                                1.5422108254079407,
                                                1.6104903319492543,
                                                1.681792830507429,
                                                1.7562521603732995,
                                                1.8340080864093424,
                                                1.9152065613971474};

/// Computes what mass_of does with half as many terms: two registers hold a table of 2^(i / 16),
/// and what is left of x lies within ln(2) / 32.
template <class T>
inline Vec<T> mass_by_table(Vec<T> x) {
  using L = Lanes<T>;
  const Vec<T> bounded = x < L::kLowest ? splat(L::kLowest) : x;
  const Vec<T> shifted = fused<T>(bounded, splat(16 * 1.4426950408889634), splat(L::kRound));
  const Vec<T> k = shifted - L::kRound;
  Vec<T> r = fused<T>(k, splat(-L::kLn2High / 16), bounded);
  r = fused<T>(k, splat(-L::kLn2Low / 16), r);
  constexpr double kInverseFactorials[] = {1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720};
  Vec<T> series = splat(1.0 / 5040);
#pragma GCC unroll 6
  for (int i = 5; i >= 0; --i) {
    series = fused<T>(series, r, splat(kInverseFactorials[i]));
  }
  const auto bits = same_bits<__m512i>(shifted);  // the lowest of them are those of k
  const __m512d power =
      _mm512_permutex2var_pd(_mm512_load_pd(kSixteenths), bits, _mm512_load_pd(kSixteenths + 8));
  // Without its lowest four bits k counts sixteenths of the exponent's unit.
  const auto exponent = (same_bits<typename L::Int>(shifted) >> 4) << L::kMantissaBits;
  const auto scaled = same_bits<Vec<T>>(same_bits<typename L::Int>(power) + exponent);
  const Vec<T> result = fused<T>(series * r, scaled, scaled);
  return x < L::kLowest ? splat(0.0) : result;
}
#endif

/// exp(x) to about one unit in the last place, for x up to 0.
template <class T>
inline Vec<T> mass_of(Vec<T> x) {
#if defined(__x86_64__)
  if constexpr (kVectorBytes == 64) {
    return mass_by_table<T>(x);
  }
#endif
  using L = Lanes<T>;
  const Vec<T> bounded = x < L::kLowest ? splat(L::kLowest) : x;
  const Vec<T> shifted = multiply_add(bounded, splat(1.4426950408889634), splat(L::kRound));
  const Vec<T> k = shifted - L::kRound;
  Vec<T> r = multiply_add(k, splat(-L::kLn2High), bounded);
  r = multiply_add(k, splat(-L::kLn2Low), r);  // |r| <= ln(2) / 2
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
  Vec<T> series = splat(kInverseFactorials[12]);
#pragma GCC unroll 12
  for (int i = 11; i >= 0; --i) {
    series = multiply_add(series, r, splat(kInverseFactorials[i]));
  }
  const auto power = same_bits<Vec<T>>((same_bits<typename L::Int>(shifted) + L::kExponentBias)
                                       << L::kMantissaBits);
  const Vec<T> result = multiply_add(series * r, power, power);
  return x < L::kLowest ? splat(0.0) : result;
}

/// The masses of scores that fill no vector, zeros behind them.
template <class T>
inline Vec<double> mass_of_rest(std::span<const T> scores, double best, double scale) {
  double lanes[Lanes<double>::kCount];
  std::fill(std::begin(lanes), std::end(lanes), -std::numeric_limits<double>::infinity());
  std::copy(scores.begin(), scores.end(), lanes);
  return mass_of<double>((load(lanes) - best) * scale);
}

/// `masses` may be nullptr: then they are only added up, in the same order.
template <class T>
inline void soften_all(std::span<const T> scores, double best, double scale, double* masses,
                       double& total) {
  constexpr size_t kCount = Lanes<double>::kCount;
  Vec<double> sums = splat(0.0);
  size_t i = 0;
  for (; i + kCount <= scores.size(); i += kCount) {
    const Vec<double> mass = mass_of<double>((load_scores(scores.data() + i) - best) * scale);
    if (masses != nullptr) {
      store(masses + i, mass);
    }
    sums += mass;
  }
  if (i < scores.size()) {
    const Vec<double> mass = mass_of_rest(scores.subspan(i), best, scale);
    if (masses != nullptr) {
      store_part(masses + i, mass, static_cast<int64_t>(scores.size() - i));
    }
    sums += mass;
  }
  total = sum<double>(sums);
}

template <class T>
inline void masses_in_blocks(std::span<const T> scores, double best, double scale,
                             std::span<double> sums) {
  for (size_t begin = 0, block = 0; begin < scores.size(); begin += kProbsBlock, ++block) {
    soften_all(scores.subspan(begin, std::min(kProbsBlock, scores.size() - begin)), best, scale,
               nullptr, sums[block]);
  }
}

inline void sum_all(std::span<const double> weights, WeightSum& result) {
  constexpr size_t kCount = Lanes<double>::kCount;
  constexpr size_t kChains = 4;  // independent ones: an addition waits for the one before
  Vec<double> sums[kChains] = {};
  Vec<double> least = splat(0.0);
  size_t i = 0;
  for (; i + kChains * kCount <= weights.size(); i += kChains * kCount) {
#pragma GCC unroll 4
    for (size_t chain = 0; chain < kChains; ++chain) {
      const Vec<double> lanes = load(weights.data() + i + chain * kCount);
      sums[chain] += lanes;
      least = lanes < least ? lanes : least;
    }
  }
  for (; i < weights.size(); i += kCount) {
    const Vec<double> lanes =
        load_part(weights.data() + i, static_cast<int64_t>(std::min(kCount, weights.size() - i)));
    sums[0] += lanes;
    least = lanes < least ? lanes : least;
  }
  result.sum = sum<double>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  result.least = 0.0;
  for (size_t lane = 0; lane < kCount; ++lane) {
    result.least = std::min(result.least, least[lane]);
  }
}

inline void multiply_all(std::span<double> values, double factor) {
  constexpr size_t kCount = Lanes<double>::kCount;
  size_t i = 0;
  for (; i + kCount <= values.size(); i += kCount) {
    store<double>(values.data() + i, load(values.data() + i) * factor);
  }
  for (; i < values.size(); ++i) {
    values[i] *= factor;
  }
}
