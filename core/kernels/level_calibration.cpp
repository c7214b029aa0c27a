#include "core/kernels/level_calibration.h"

#include <algorithm>
#include <cmath>

namespace specdec {
namespace {

constexpr size_t kLevelBins = 1024;

/// The bin of a number that is so many times the root mean square of its group: at most the root of
/// the numbers of a group.
size_t bin_of(double ratio) {
  const double most = std::sqrt(static_cast<double>(kKvGroup));
  const double place = (ratio / most + 1.0) / 2.0 * static_cast<double>(kLevelBins);
  return std::min(static_cast<size_t>(std::max(place, 0.0)), kLevelBins - 1);
}

/// Sums of what lies before each bin, and of all.
std::vector<double> sums_before(const std::vector<double>& bins) {
  std::vector<double> sums = {0.0};
  for (const double bin : bins) {
    sums.push_back(sums.back() + bin);
  }
  return sums;
}

/// Parts of the bins, one after another, each with its mean as the level.
class BinParts {
 public:
  BinParts(const std::vector<double>& masses, const std::vector<double>& sums)
      : masses_(sums_before(masses)), sums_(sums_before(sums)) {}

  double mass(size_t begin, size_t end) const { return masses_[end] - masses_[begin]; }
  double mean(size_t begin, size_t end) const {
    return (sums_[end] - sums_[begin]) / mass(begin, end);
  }
  /// What a part takes off the sum of squares, which is its squared error with a level of 0.
  double gain(size_t begin, size_t end) const {
    const double sum = sums_[end] - sums_[begin];
    return mass(begin, end) > 0.0 ? sum * sum / mass(begin, end) : 0.0;
  }

 private:
  std::vector<double> masses_, sums_;
};

}  // namespace

LevelCalibration::LevelCalibration(LevelWeights weights)
    : weights_(weights), masses_(kLevelBins), sums_(kLevelBins) {}

void LevelCalibration::add(std::span<const float> head) {
  while (!head.empty()) {
    const auto group = head.first(std::min<size_t>(head.size(), kKvGroup));
    head = head.subspan(group.size());
    double squares = 0.0;
    for (const float number : group) {
      squares += static_cast<double>(number) * number;
    }
    const double square = squares / static_cast<double>(group.size());
    const double rms = std::sqrt(square);
    if (!std::isfinite(rms) || rms == 0.0) {
      continue;
    }
    const double weight = weights_ == LevelWeights::kByMagnitude ? square : 1.0;
    for (const float number : group) {
      const double ratio = number / rms;
      const size_t bin = bin_of(ratio);
      masses_[bin] += weight;
      sums_[bin] += weight * ratio;
    }
  }
}

std::array<float, kQ3Levels> LevelCalibration::levels() const {
  std::array<float, kQ3Levels> levels = {};
  const BinParts bins(masses_, sums_);
  if (bins.mass(0, kLevelBins) == 0.0) {
    std::copy(std::begin(kNormalLevels), std::end(kNormalLevels), levels.begin());
    std::sort(levels.begin(), levels.end());
    return levels;
  }
  // The most that so many parts of the bins before each one gain, and where the last part begins.
  std::vector<double> gains(kLevelBins + 1);
  std::array<std::vector<size_t>, kQ3Levels> begins;
  for (size_t part = 0; part < begins.size(); ++part) {
    const std::vector<double> fewer = gains;
    begins[part].resize(kLevelBins + 1);
    for (size_t end = 0; end <= kLevelBins; ++end) {
      gains[end] = bins.gain(0, end);  // the parts before it are empty
      for (size_t begin = 1; part > 0 && begin < end; ++begin) {
        if (const double gain = fewer[begin] + bins.gain(begin, end); gain > gains[end]) {
          gains[end] = gain;
          begins[part][end] = begin;
        }
      }
    }
  }
  double level = 0.0;
  size_t end = kLevelBins;
  for (size_t part = begins.size(); part-- > 0;) {
    const size_t begin = begins[part][end];
    level = bins.mass(begin, end) > 0.0 ? bins.mean(begin, end) : level;
    levels[part] = static_cast<float>(level);
    end = begin;
  }
  return levels;
}

}  // namespace specdec
