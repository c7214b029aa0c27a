#include "core/likely_tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/kernels/probs.h"

namespace specdec {
namespace {

constexpr double kNoScore = -std::numeric_limits<double>::infinity();
constexpr size_t kFirstNucleus = 128;  // tokens
constexpr double kNoMass = 709.0;      // temperatures below the best score: exp underflows

/// Two scores this close, in units of the temperature, may have masses that are equal, or in the
/// other order, by rounding.
constexpr double kRounding = 1e-12;

struct Likely {
  Token token = 0;
  double score = 0.0;
  double mass = 0.0;
};

using Found = std::vector<Likely>;

bool comes_first(const Likely& a, const Likely& b) {
  return a.mass != b.mass ? a.mass > b.mass : a.token < b.token;
}

double mass_of(const Found& found, double threshold) {
  return std::accumulate(found.begin(), found.end(), 0.0, [&](double sum, const Likely& one) {
    return sum + (one.score >= threshold ? one.mass : 0.0);
  });
}

/// The tokens whose scores reach the threshold, ascending, without those that have no mass.
Found at_least(const Scores& scores, double scale, double threshold) {
  Found found;
  std::array<double, kProbsBlock> part;
  std::array<double, kProbsBlock> masses;
  const std::span<const double> maxima = scores.maxima();
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] < threshold || maxima[block] == kNoScore) {
      continue;
    }
    const auto index = static_cast<int64_t>(block);
    const std::span<double> filled = std::span(part).first(scores.size_of(index));
    scores.fill(index, filled);
    const size_t before = found.size();
    for (size_t i = 0; i < filled.size(); ++i) {
      if (filled[i] >= threshold) {
        found.push_back({static_cast<Token>(block * kProbsBlock + i), filled[i]});
        filled[found.size() - before - 1] = filled[i];
      }
    }
    soften(filled.first(found.size() - before), scores.best(), scale, masses);
    for (size_t i = before; i < found.size(); ++i) {
      found[i].mass = masses[i - before];
    }
  }
  std::erase_if(found, [](const Likely& one) { return one.mass <= 0.0; });
  return found;
}

/// A score that at least `count` tokens reach, of up to as many as there are blocks: the `count`
/// blocks with the largest scores each have one.
double reached_by(std::vector<double> maxima, size_t count) {
  const auto last = maxima.begin() + static_cast<int64_t>(std::min(count, maxima.size())) - 1;
  std::nth_element(maxima.begin(), last, maxima.end(), std::greater<>());
  return *last;
}

/// The tokens above a threshold that goes down, from where `count` tokens may be, until they are
/// `enough`; and those whose mass may be equal to the last one's by rounding.
Found likeliest(const Scores& scores, double scale, size_t count,
                const std::function<bool(const Found&, double threshold)>& enough) {
  double threshold = reached_by({scores.maxima().begin(), scores.maxima().end()}, count);
  double below = scores.best() - threshold;
  while (true) {
    Found found = at_least(scores, scale, threshold - kRounding / scale);
    const bool all = threshold == kNoScore || below > kNoMass / scale;
    if (all || enough(found, threshold)) {
      return found;
    }
    below = std::max(1.3 * below, 1.0 / scale);
    threshold = scores.best() - below;
  }
}

/// Cuts to the most likely `count`.
void keep_count(Found& found, size_t count) {
  if (count < found.size()) {
    std::nth_element(found.begin(), found.begin() + static_cast<int64_t>(count), found.end(),
                     comes_first);
    found.resize(count);
  }
}

/// Cuts to the smallest set of the most likely ones whose mass reaches `wanted`. Sorts no more than
/// it needs.
void keep_nucleus(Found& found, double wanted) {
  double reached = 0.0;
  size_t sorted = 0;
  size_t chunk = kFirstNucleus;
  while (sorted < found.size()) {
    const size_t next = std::min(sorted + chunk, found.size());
    const auto begin = found.begin() + static_cast<int64_t>(sorted);
    const auto end = found.begin() + static_cast<int64_t>(next);
    if (next < found.size()) {
      std::nth_element(begin, end, found.end(), comes_first);
    }
    std::sort(begin, end, comes_first);
    for (size_t i = sorted; i < next; ++i) {
      reached += found[i].mass;
      if (reached >= wanted) {
        found.resize(i + 1);
        return;
      }
    }
    sorted = next;
    chunk *= 4;
  }
}

TokenProbs by_token(Found found, int64_t vocab_size) {
  std::sort(found.begin(), found.end(),
            [](const Likely& a, const Likely& b) { return a.token < b.token; });
  std::vector<Token> ids(found.size());
  std::vector<double> masses(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ids[i] = found[i].token;
    masses[i] = found[i].mass;
  }
  return TokenProbs(std::move(ids), std::move(masses), vocab_size);
}

template <class T>
std::vector<Token> highest(std::span<const T> logits, size_t count) {
  std::vector<double> maxima((logits.size() + kProbsBlock - 1) / kProbsBlock);
  block_maxima(logits, maxima);
  for (double& maximum : maxima) {
    maximum = std::isnan(maximum) ? std::numeric_limits<double>::infinity() : maximum;
  }
  const double threshold = count <= maxima.size() ? reached_by(maxima, count) : kNoScore;
  const auto key = [&](Token token) {
    const auto logit = static_cast<double>(logits[static_cast<size_t>(token)]);
    return std::isnan(logit) ? kNoScore : logit;
  };
  std::vector<Token> found;
  for (size_t block = 0; block < maxima.size(); ++block) {
    const size_t end = std::min((block + 1) * kProbsBlock, logits.size());
    for (size_t i = block * kProbsBlock; maxima[block] >= threshold && i < end; ++i) {
      const auto token = static_cast<Token>(i);
      if (key(token) >= threshold) {
        found.push_back(token);
      }
    }
  }
  const auto last = found.begin() + static_cast<int64_t>(std::min(count, found.size()));
  std::partial_sort(found.begin(), last, found.end(),
                    [&](Token a, Token b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
  found.erase(last, found.end());
  return found;
}

}  // namespace

std::vector<Token> highest_logits(const LogitRow& row, int64_t count) {
  return std::visit([&](const auto logits) { return highest(logits, static_cast<size_t>(count)); },
                    row.values);
}

bool LikelyTokens::keeps_all(int64_t vocab_size) const {
  return !limits_count(vocab_size) && top_p >= 1.0 && min_p <= 0.0;
}

TokenProbs LikelyTokens::of(const Scores& scores, double scale) const {
  Found found;
  if (limits_count(scores.size())) {
    const auto count = static_cast<size_t>(top_k);
    found = likeliest(scores, scale, count, [&](const Found& so_far, double threshold) {
      return std::count_if(so_far.begin(), so_far.end(),
                           [&](const Likely& one) { return one.score >= threshold; }) >= top_k;
    });
    keep_count(found, count);
    if (top_p < 1.0) {
      keep_nucleus(found, top_p * mass_of(found, kNoScore));
    }
  } else if (top_p < 1.0) {
    const double wanted = top_p * sum_of(scores.mass_sums(scale)).sum;
    found = likeliest(scores, scale, kFirstNucleus, [&](const Found& so_far, double threshold) {
      return mass_of(so_far, threshold) >= wanted * (1.0 + kRounding);
    });
    keep_nucleus(found, wanted);
  } else {
    found = at_least(scores, scale, scores.best() + (std::log(min_p) - kRounding) / scale);
  }
  std::erase_if(found, [this](const Likely& one) { return one.mass < min_p; });
  return by_token(std::move(found), scores.size());
}

}  // namespace specdec
