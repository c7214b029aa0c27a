// Passes of core/kernels/probs.cpp; see core/kernels/for_each_simd.h.

inline void largest(std::span<const double> values, double& result) {
  using Int = Lanes<double>::Int;
  constexpr size_t kCount = Lanes<double>::kCount;
  Vec<double> best = splat(-std::numeric_limits<double>::infinity());
  Int unordered = {};
  size_t i = 0;
  for (; i + kCount <= values.size(); i += kCount) {
    const Vec<double> lanes = load(values.data() + i);
    unordered |= lanes != lanes;
    best = maximum<double>(lanes, best);
  }
  bool has_nan = false;
  result = best[0];
  for (size_t lane = 0; lane < kCount; ++lane) {
    has_nan |= unordered[lane] != 0;
    result = best[lane] > result ? best[lane] : result;
  }
  for (; i < values.size(); ++i) {
    has_nan |= std::isnan(values[i]);
    result = values[i] > result ? values[i] : result;
  }
  result = has_nan ? std::numeric_limits<double>::quiet_NaN() : result;
}

inline void soften_all(std::span<double> values, double best, double scale, double& total) {
  constexpr size_t kCount = Lanes<double>::kCount;
  Vec<double> sums = splat(0.0);
  size_t i = 0;
  for (; i + kCount <= values.size(); i += kCount) {
    const Vec<double> mass = exp<double>((load(values.data() + i) - best) * scale);
    store(values.data() + i, mass);
    sums += mass;
  }
  if (i < values.size()) {
    const auto rest = static_cast<int64_t>(values.size() - i);
    double* part = values.data() + i;
    store_part(part, exp<double>((load_part(part, rest) - best) * scale), rest);
    sums += load_part(part, rest);
  }
  total = sum<double>(sums);
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
