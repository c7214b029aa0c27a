#include "decoders/analysis/draft_bias.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "decoders/analysis/test_power.h"

namespace specdec {

namespace {

BiasSums sums_of(const TraceDepth& depth) {
  const bool taken = depth.is_favoured || depth.p == 0.0;
  const double step = (taken ? 1.0 : 0.0) - depth.favoured;
  return {.tokens = 1,
          .taken = taken ? 1 : 0,
          .expected = depth.favoured,
          .variance = std::max(0.0, depth.favoured * (1.0 - depth.favoured)),
          .squares = step * step};
}

}  // namespace

void BiasSums::add(const BiasSums& other) {
  tokens += other.tokens;
  taken += other.taken;
  expected += other.expected;
  variance += other.variance;
  squares += other.squares;
}

double BiasSums::total_variation_bound(double confidence) const {
  if (tokens == 0) {
    return 0.0;
  }
  // What the texts' own distributions give B is not known; the squares of the steps bound the
  // variance of their sum.
  const double spread = std::max(squares, variance);
  const double margin = std::sqrt(critical_value({1, 1.0 - confidence}) * spread);
  const double shift = std::abs(static_cast<double>(taken) - expected);
  return std::max(0.0, shift - margin) / static_cast<double>(tokens);
}

void DraftBias::add(const DraftTrace& trace) {
  SPECDEC_CHECK(trace.depth == 1, "a trace of depth {} for a test of depth 1", trace.depth);
  for (const TracePosition& position : trace.positions) {
    sums_.add(position.depths.empty() ? BiasSums{.tokens = 1} : sums_of(position.depths.front()));
    if (!position.depths.empty()) {
      const TraceDepth& depth = position.depths.front();
      impossible_ += depth.p == 0.0 ? 1 : 0;
      if (depth.favoured > 0.0) {
        places_.push_back({depth.favoured, 1.0 - depth.overlap, depth.is_favoured});
      }
    }
  }
}

bool DraftBias::add_text(DecodingStrategy& tracer, const Request& request, TokenSpan output) {
  std::optional<DraftTrace> trace;
  try {
    trace = tracer.trace(request, output, {.depth = 1});
  } catch (const ConfigError&) {  // its drafter needs a tree
  }
  if (trace) {
    add(*trace);
  }
  return trace.has_value();
}

int64_t DraftBias::taken() const {
  return std::count_if(places_.begin(), places_.end(),
                       [](const BiasPlace& place) { return place.taken; });
}

double DraftBias::statistic() const {
  if (impossible_ > 0) {
    return std::numeric_limits<double>::infinity();
  }
  const double shift = static_cast<double>(taken()) - expected();
  const double spread = variance();
  return spread > 0.0 ? shift * shift / spread : 0.0;
}

double DraftBias::p_value() const { return chi_square_tail(statistic(), 1); }

double DraftBias::visible_total_variation(double false_positives, double power) const {
  const double spread = noncentrality({1, false_positives}, power) * variance();
  return spread > 0.0 ? std::sqrt(spread) / static_cast<double>(tokens()) : 1.0;
}

}  // namespace specdec
