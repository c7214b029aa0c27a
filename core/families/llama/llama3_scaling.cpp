#include "core/families/llama/llama3_scaling.h"

#include <algorithm>
#include <cmath>

namespace specdec {
namespace {

/// The frequencies at which a scaling's bands begin.
struct Bands {
  double low, high;
};

/// Between its bands a divisor d of the frequency f is a blend: 1/d = (1 - s) / factor + s, where
/// the share s grows with f, from 0 at low to 1 at high.
std::optional<Bands> fit_bands(const RopeConfig& rope, int64_t head_dim, double factor) {
  struct Point {
    double frequency, share;
  };
  std::vector<Point> points;
  for (size_t i = 0; i < rope.divisors.size(); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double share = (1.0 / rope.divisors[i] - 1.0 / factor) / (1.0 - 1.0 / factor);
    constexpr double kRounding = 1e-5;
    if (share > kRounding && share < 1.0 - kRounding) {
      points.push_back({std::pow(rope.theta, exponent), share});
    }
  }
  if (points.size() < 2) {
    return std::nullopt;
  }
  const Point& first = points.front();
  const Point& last = points.back();
  const double slope = (first.share - last.share) / (first.frequency - last.frequency);
  const double low = last.frequency - last.share / slope;
  if (!(slope > 0.0 && low > 0.0)) {
    return std::nullopt;
  }
  return Bands{low, low + 1.0 / slope};
}

/// The scaling in which the bands are so many waves of `original` positions.
Llama3Rope scaling_of(const Bands& bands, double factor, double original) {
  const double waves = original / (2.0 * M_PI);
  return {.factor = factor,
          .low_freq_factor = bands.low * waves,
          .high_freq_factor = bands.high * waves,
          .original_positions = original};
}

/// The scaling with its bands at multiples of 1/16, as they are written by hand.
Llama3Rope rounded(Llama3Rope scaling) {
  for (double* factor : {&scaling.low_freq_factor, &scaling.high_freq_factor}) {
    *factor = std::round(*factor * 16.0) / 16.0;
  }
  return scaling;
}

}  // namespace

bool same_divisors(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kTolerance = 1e-5;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
    return std::abs(x - y) <= kTolerance * std::max(x, y);
  });
}

std::optional<Llama3Rope> find_llama3(const RopeConfig& rope, int64_t head_dim,
                                      int64_t max_positions) {
  const double factor = *std::max_element(rope.divisors.begin(), rope.divisors.end());
  const auto fits = [&](const Llama3Rope& scaling) {
    return scaling.low_freq_factor > 0.0 && scaling.high_freq_factor > scaling.low_freq_factor &&
           same_divisors(llama3_divisors(scaling, rope.theta, head_dim), rope.divisors);
  };
  std::vector<double> originals = {8192.0, static_cast<double>(max_positions)};
  for (int64_t positions = 16; positions <= 1 << 24; positions *= 2) {
    originals.push_back(static_cast<double>(positions));
  }
  for (const double original : originals) {
    if (const Llama3Rope own{.factor = factor, .original_positions = original}; fits(own)) {
      return own;
    }
  }
  const auto bands = fit_bands(rope, head_dim, factor);
  if (!bands) {
    return std::nullopt;
  }
  const double one_wave = std::max(1.0, std::round(2.0 * M_PI / bands->low));
  for (const double original : {one_wave, 8192.0, static_cast<double>(max_positions)}) {
    if (const Llama3Rope exact = rounded(scaling_of(*bands, factor, original)); fits(exact)) {
      return exact;
    }
  }
  const Llama3Rope fitted = scaling_of(*bands, factor, one_wave);
  return fits(fitted) ? std::optional(fitted) : std::nullopt;
}

}  // namespace specdec
