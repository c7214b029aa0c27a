#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/error.h"
#include "experiments/config/names.h"
#include "experiments/simulate/profile.h"
#include "experiments/simulate/simulate.h"

namespace specdec {
namespace {

constexpr int64_t kEnoughSteps = 20;  // for a mean of their own

/// Linear between the points and beyond the last; flat before the first.
double interpolate(const std::map<int64_t, double>& points, int64_t at) {
  SPECDEC_CHECK(!points.empty(), "costs without points");
  auto above = points.lower_bound(at);
  if (above != points.end() && (above->first == at || above == points.begin())) {
    return above->second;
  }
  if (above == points.end()) {
    above = std::prev(above);
    if (above == points.begin()) {
      return above->second;
    }
  }
  const auto below = std::prev(above);
  const double share =
      static_cast<double>(at - below->first) / static_cast<double>(above->first - below->first);
  return std::max(0.0, below->second + share * (above->second - below->second));
}

/// Times of steps of one kind, represented by their median: other load on the machine affects few.
struct Times {
  std::vector<double> seconds;
  std::vector<double> by_curve;  ///< of forwards: as multiples of the cost curve
  int64_t count() const { return std::ssize(seconds); }
  double median() const { return spread_of(seconds).median; }
};

/// A generation's first draft, in which the drafter reads the prompt.
struct FirstDraft {
  int64_t depth = 0;
  int64_t prompt_tokens = 0;
  double seconds = 0.0;
};

/// Times of steps, by what they drafted.
struct StepTimes {
  std::map<int64_t, Times> draft;   // by depth, but a generation's first
  std::vector<FirstDraft> first;    // those
  std::map<int64_t, Times> verify;  // by nodes with the root
  std::map<int64_t, Times> other;   // the same
};

void add_times(const GenerationRecord& record, bool plain, const CostCurve& curve,
               StepTimes& times) {
  int64_t context = record.prompt_tokens;
  bool first = true;
  for (const StepStatistics& step : record.generation.steps) {
    if (plain == (step.drafted == 0) && !is_cut(step)) {
      if (first) {
        times.first.push_back({step.depth, record.prompt_tokens, step.draft_seconds});
      } else {
        times.draft[step.depth].seconds.push_back(step.draft_seconds);
      }
      Times& verify = times.verify[step.drafted + 1];
      verify.seconds.push_back(step.verify_seconds);
      verify.by_curve.push_back(step.verify_seconds / curve.seconds(step.drafted + 1, context));
      times.other[step.drafted + 1].seconds.push_back(step.other_seconds);
    }
    first = false;
    context += step.committed;
  }
}

int64_t most_of(const std::map<int64_t, Times>& times) {
  int64_t most = 0;
  for (const auto& [at, one] : times) {
    most = std::max(most, one.count());
  }
  return most;
}

/// Median times at the keys that enough steps had, at least at the one that most steps had.
std::map<int64_t, double> trusted(const std::map<int64_t, Times>& times) {
  std::map<int64_t, double> points;
  const int64_t enough = std::min(kEnoughSteps, most_of(times));
  for (const auto& [at, one] : times) {
    if (one.count() >= enough) {
      points[at] = one.median();
    }
  }
  return points;
}

/// Time at depth 1 on the line through all drafts (least squares); none when hardly any was of
/// another depth than the others. A draft costs something before its first token, so a share of a
/// long one's time is too little.
std::optional<double> shortest_draft(const std::map<int64_t, Times>& draft) {
  double count = 0.0;
  double depths = 0.0;
  double seconds = 0.0;
  for (const auto& [depth, times] : draft) {
    const auto steps = static_cast<double>(times.count());
    count += steps;
    depths += steps * static_cast<double>(depth);
    seconds += steps * times.median();
  }
  if (count - static_cast<double>(most_of(draft)) < kEnoughSteps) {
    return std::nullopt;
  }
  double variance = 0.0;
  double covariance = 0.0;
  for (const auto& [depth, times] : draft) {
    const auto steps = static_cast<double>(times.count());
    const double offset = static_cast<double>(depth) - depths / count;
    variance += steps * offset * offset;
    covariance += steps * offset * times.median();
  }
  return std::max(0.0, seconds / count + covariance / variance * (1.0 - depths / count));
}

/// What the first drafts took longer than others, a token of the prompt.
double reading_seconds(const std::vector<FirstDraft>& first, const StepCosts& costs) {
  std::vector<double> seconds;
  for (const FirstDraft& draft : first) {
    seconds.push_back((draft.seconds - costs.draft_seconds(draft.depth)) /
                      static_cast<double>(std::max<int64_t>(1, draft.prompt_tokens)));
  }
  return seconds.empty() ? 0.0 : std::max(0.0, spread_of(std::move(seconds)).median);
}

/// The curve's times stand for a quiet machine; a run's own forwards take somewhat longer. Told by
/// the numbers of tokens that it verified often: a forward of few right after one of many, as at
/// the end of a generation, takes longer than in a row of its kind.
CostCurve scaled(const CostCurve& curve, const std::map<int64_t, Times>& verify) {
  const int64_t enough = std::max(kEnoughSteps, most_of(verify) / 10);
  std::map<int64_t, double> factors;
  for (const auto& [nodes, times] : verify) {
    if (times.count() >= enough) {
      factors[nodes] = spread_of(times.by_curve).median;
    }
  }
  CostCurve result = curve;
  const int64_t last = factors.empty() ? 0 : factors.rbegin()->first;
  for (CostPoint& point : result.points) {
    point.seconds *= factors.empty() ? 1.0 : interpolate(factors, std::min(point.new_tokens, last));
  }
  return result;
}

}  // namespace

double StepCosts::draft_seconds(int64_t depth) const {
  return depth == 0 ? 0.0 : interpolate(draft, depth);
}

double StepCosts::other_seconds(int64_t nodes) const { return interpolate(other, nodes); }

StepCosts costs_of(const Profile& profile, const std::string& drafter) {
  std::vector<std::string> names;
  const DrafterProfile* found = nullptr;
  for (const DrafterProfile& one : profile.drafters) {
    names.push_back(one.name);
    if (one.name == drafter || (drafter.empty() && profile.drafters.size() == 1)) {
      found = &one;
    }
  }
  StepCosts costs;
  costs.verify = curve_of_text(profile.target, profile.experts);
  costs.other[1] = profile.plain.other.median;
  if (names.empty() && drafter.empty()) {
    return costs;
  }
  if (found == nullptr) {
    throw ConfigError(
        names.empty() ? fmt::format("the profile holds no drafter '{}': leave --drafter out and "
                                    "give --draft-cost",
                                    drafter)
                      : fmt::format("the profile holds these drafters: {}; name one with "
                                    "--drafter",
                                    join_names(names)));
  }
  costs.draft[0] = 0.0;
  costs.prompt_token = found->prompt_token;
  for (const DraftCost& cost : found->lengths) {
    costs.draft[cost.drafted] = cost.draft.median;
    costs.other[cost.drafted + 1] = cost.other.median;
  }
  return costs;
}

StepCosts costs_of(const CostCurve& curve, std::span<const GenerationRecord> records,
                   const std::string& strategy, const std::string& sweep_point) {
  StepTimes plain;
  StepTimes drafting;
  for (const GenerationRecord& record : records) {
    add_times(record, true, curve, plain);
    if (record.key.strategy == strategy && record.key.sweep_point == sweep_point) {
      add_times(record, false, curve, drafting);
    }
  }
  if (drafting.draft.empty()) {  // all generations had but one step
    for (const FirstDraft& first : std::exchange(drafting.first, {})) {
      drafting.draft[first.depth].seconds.push_back(first.seconds);
    }
  }
  if (plain.other.empty() || drafting.draft.empty()) {
    throw Error(fmt::format(
        "the run tells no costs: it needs steps without a draft (run autoregressive too) and steps "
        "of {} with one. Give costs with --profile, or leave speeds out with --no-speed",
        strategy));
  }
  StepCosts costs;
  costs.draft = trusted(drafting.draft);
  if (const auto shortest = shortest_draft(drafting.draft)) {
    costs.draft.emplace(1, *shortest);
  }
  costs.draft.emplace(0, 0.0);
  costs.prompt_token = reading_seconds(drafting.first, costs);
  costs.other = trusted(drafting.other);
  costs.other[1] = plain.other.begin()->second.median();
  auto verify = drafting.verify;
  verify[1] = plain.verify.begin()->second;
  costs.verify = scaled(curve, verify);
  return costs;
}

void set_draft_cost(StepCosts& costs, double ratio) {
  const double plain = costs.verify.seconds(1, costs.verify.points.front().context);
  costs.draft = {{0, 0.0}, {1, ratio * plain}};
  costs.prompt_token = 0.0;
}

}  // namespace specdec
