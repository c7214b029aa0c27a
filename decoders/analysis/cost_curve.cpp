#include "decoders/analysis/cost_curve.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/stopwatch.h"
#include "decoders/analysis/quantile.h"

namespace specdec {
namespace {

/// Forwards of one width in a row; the first ones find other data cached.
constexpr int64_t kTurn = 20;

/// The points of a context around a number of tokens; nullptr = there is none. Of points with the
/// same number the last counts.
struct Neighbours {
  const CostPoint* further_below = nullptr;
  const CostPoint* below = nullptr;
  const CostPoint* above = nullptr;  // or at it
};

Neighbours neighbours(const CostCurve& curve, int64_t new_tokens, int64_t context) {
  Neighbours found;
  for (const CostPoint& point : curve.points) {
    const int64_t tokens = point.new_tokens;
    if (point.context != context) {
      continue;
    }
    if (tokens >= new_tokens) {
      found.above =
          found.above == nullptr || tokens <= found.above->new_tokens ? &point : found.above;
    } else if (found.below == nullptr || tokens > found.below->new_tokens) {
      found.further_below = std::exchange(found.below, &point);
    } else if (tokens == found.below->new_tokens) {
      found.below = &point;
    } else if (found.further_below == nullptr || tokens >= found.further_below->new_tokens) {
      found.further_below = &point;
    }
  }
  return found;
}

/// A context, and the numbers of new tokens that fit the model after it.
struct FittingTokens {
  int64_t context = 0;
  std::vector<int64_t> new_tokens;
};

FittingTokens fitting_after(int64_t context, const LanguageModel& model,
                            const CostCurveOptions& options) {
  FittingTokens fitting{.context = context, .new_tokens = {}};
  for (const int64_t new_tokens : options.new_tokens) {
    SPECDEC_CHECK(context >= 1 && new_tokens >= 1, "{} new tokens after {}", new_tokens, context);
    if (context + new_tokens <= model.max_length()) {
      fitting.new_tokens.push_back(new_tokens);
    }
  }
  return fitting;
}

/// The fitting tokens of all contexts after which something fits; never empty.
std::vector<FittingTokens> fitting_tokens(const LanguageModel& model,
                                          const CostCurveOptions& options) {
  std::vector<FittingTokens> all;
  for (const int64_t context : options.contexts) {
    auto fitting = fitting_after(context, model, options);
    if (!fitting.new_tokens.empty()) {
      all.push_back(std::move(fitting));
    }
  }
  if (!all.empty()) {
    return all;
  }
  if (model.max_length() < 2) {
    throw Error(
        fmt::format("a model's cost curve needs room for 2 tokens, and this one takes {}: give it "
                    "a longer max_length",
                    model.max_length()));
  }
  auto half = fitting_after(model.max_length() / 2, model, options);
  if (half.new_tokens.empty()) {
    half.new_tokens = {1};
  }
  return {std::move(half)};
}

}  // namespace

double time_forward(LanguageModel& model, const Tensor& tokens) {
  const int64_t context = model.length();
  const Stopwatch stopwatch;
  // A device copies its best tokens to the host and not rows of logits, as in greedy requests.
  (void)model.forward({.tokens = tokens, .rows = {}, .parents = {}},
                      {.logits_use = LogitsUse::kBest});
  const double seconds = stopwatch.seconds();
  model.truncate(context);
  return seconds;
}

Tensor timed_tokens(int64_t count, int64_t vocab) {
  return at::arange(count, at::kInt).remainder_(vocab);
}

double CostCurve::seconds(int64_t new_tokens, int64_t context) const {
  SPECDEC_CHECK(!points.empty(), "a cost curve without points");
  const auto nearest =
      std::min_element(points.begin(), points.end(), [&](const CostPoint& a, const CostPoint& b) {
        return std::abs(a.context - context) < std::abs(b.context - context);
      });
  const Neighbours at = neighbours(*this, new_tokens, nearest->context);
  if (at.below == nullptr) {
    return at.above->seconds;
  }
  const CostPoint* low = at.below;
  const CostPoint* high = at.above;
  if (high == nullptr) {  // more than was measured: the last two points' line
    low = at.further_below;
    high = at.below;
    if (low == nullptr || high->seconds <= low->seconds) {
      return high->seconds;  // noise: no more tokens cost less
    }
  }
  const double share = static_cast<double>(new_tokens - low->new_tokens) /
                       static_cast<double>(high->new_tokens - low->new_tokens);
  return low->seconds + share * (high->seconds - low->seconds);
}

CostPoint cost_point(int64_t new_tokens, int64_t context, std::vector<double> repeats) {
  std::sort(repeats.begin(), repeats.end());
  return {.new_tokens = new_tokens,
          .context = context,
          .seconds = quantile(repeats, 0.5),
          .low = quantile(repeats, 0.25),
          .high = quantile(repeats, 0.75)};
}

CostCurve measure_cost_curve(LanguageModel& model, const CostCurveOptions& options) {
  SPECDEC_CHECK(options.repeats >= 1, "a median of {} repeats", options.repeats);
  const int64_t turn = std::min(kTurn, options.repeats);
  CostCurve curve;
  const auto fitting = fitting_tokens(model, options);
  for (const auto& [context, widths] : fitting) {
    std::map<int64_t, std::vector<double>> seconds;  // by new tokens
    for (const int64_t new_tokens : widths) {
      seconds[new_tokens] = {};
    }
    const Tensor prompt = timed_tokens(context, model.vocab_size());
    model.prefill_get_last_logits({prompt.const_data_ptr<int32_t>(), static_cast<size_t>(context)});
    const Stopwatch stopwatch;
    const double enough = options.seconds / static_cast<double>(fitting.size());
    for (int64_t done = 0; done < options.repeats || stopwatch.seconds() < enough; done += turn) {
      for (auto& [new_tokens, times] : seconds) {
        const Tensor tokens = timed_tokens(new_tokens, model.vocab_size());
        time_forward(model, tokens);  // warms up: the one before was of another width
        for (int64_t i = 0; i < turn; ++i) {
          if (options.between) {
            options.between();
          }
          times.push_back(time_forward(model, tokens));
        }
      }
    }
    for (auto& [new_tokens, times] : seconds) {
      curve.points.push_back(cost_point(new_tokens, context, std::move(times)));
    }
  }
  return curve;
}

}  // namespace specdec
