#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/error.h"
#include "experiments/names.h"
#include "experiments/profile.h"
#include "experiments/simulate.h"

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

struct Mean {
  double sum = 0.0;
  double expected = 0.0;  // by the curve
  int64_t count = 0;
  double value() const { return sum / static_cast<double>(count); }
};

/// Mean times of steps, by what they drafted.
struct StepTimes {
  std::map<int64_t, Mean> draft;   // by depth, but a generation's first
  std::map<int64_t, Mean> first;   // those
  int64_t prompt_tokens = 0;       // that the first ones read
  std::map<int64_t, Mean> verify;  // by nodes with the root
  std::map<int64_t, Mean> other;   // the same
};

void add_times(const GenerationRecord& record, bool plain, const CostCurve& curve,
               StepTimes& times) {
  int64_t context = record.prompt_tokens;
  bool first = true;
  for (const StepStatistics& step : record.generation.steps) {
    if (plain == (step.drafted == 0)) {
      const auto add = [](Mean& mean, double seconds, double expected) {
        mean.sum += seconds;
        mean.expected += expected;
        ++mean.count;
      };
      add(first ? times.first[step.depth] : times.draft[step.depth], step.draft_seconds, 0.0);
      times.prompt_tokens += first ? record.prompt_tokens : 0;
      add(times.verify[step.drafted + 1], step.verify_seconds,
          curve.seconds(step.drafted + 1, context));
      add(times.other[step.drafted + 1], step.other_seconds, 0.0);
    }
    first = false;
    context += step.committed;
  }
}

/// Those that enough steps had; at least the one that most had.
std::map<int64_t, double> trusted(const std::map<int64_t, Mean>& means) {
  std::map<int64_t, double> points;
  const auto most = std::max_element(means.begin(), means.end(), [](const auto& a, const auto& b) {
    return a.second.count < b.second.count;
  });
  for (const auto& [at, mean] : means) {
    if (mean.count >= kEnoughSteps || at == most->first) {
      points[at] = mean.value();
    }
  }
  return points;
}

/// Mean time at depth 1 on the line through all drafts (least squares); none when hardly any was of
/// another depth than the others. A draft costs something before its first token, so a share of a
/// long one's time is too little.
std::optional<double> shortest_draft(const std::map<int64_t, Mean>& draft) {
  double count = 0.0;
  double depths = 0.0;
  double seconds = 0.0;
  int64_t most = 0;
  for (const auto& [depth, mean] : draft) {
    count += static_cast<double>(mean.count);
    depths += static_cast<double>(mean.count * depth);
    seconds += mean.sum;
    most = std::max(most, mean.count);
  }
  if (count - static_cast<double>(most) < kEnoughSteps) {
    return std::nullopt;
  }
  double variance = 0.0;
  double covariance = 0.0;
  for (const auto& [depth, mean] : draft) {
    const double offset = static_cast<double>(depth) - depths / count;
    variance += static_cast<double>(mean.count) * offset * offset;
    covariance += offset * mean.sum;
  }
  return std::max(0.0, seconds / count + covariance / variance * (1.0 - depths / count));
}

/// What the first drafts took longer than others, a token of the prompt.
double reading_seconds(const StepTimes& times, const StepCosts& costs) {
  double seconds = 0.0;
  for (const auto& [depth, mean] : times.first) {
    seconds += mean.sum - static_cast<double>(mean.count) * costs.draft_seconds(depth);
  }
  return std::max(0.0, seconds) / static_cast<double>(std::max<int64_t>(1, times.prompt_tokens));
}

/// The curve's times stand for a quiet machine; a run's own forwards take somewhat longer.
CostCurve scaled(const CostCurve& curve, const std::map<int64_t, Mean>& verify) {
  std::map<int64_t, double> factors;
  for (const auto& [nodes, mean] : verify) {
    if (mean.count >= kEnoughSteps && mean.expected > 0.0) {
      factors[nodes] = mean.sum / mean.expected;
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
  if (found == nullptr) {
    throw ConfigError(
        names.empty()
            ? std::string("the profile holds no drafter; measure it with specdec profile MODEL "
                          "--draft DRAFTER --json FILE")
            : fmt::format("the profile holds these drafters: {}; name one with --drafter",
                          join_names(names)));
  }
  StepCosts costs;
  costs.verify = profile.target;
  costs.draft[0] = 0.0;
  costs.prompt_token = found->prompt_token;
  costs.other[1] = profile.plain.other.median;
  for (const DraftCost& cost : found->lengths) {
    costs.draft[cost.drafted] = cost.draft.median;
    costs.other[cost.drafted + 1] = cost.other.median;
  }
  return costs;
}

StepCosts costs_of(const CostCurve& curve, std::span<const GenerationRecord> records,
                   const std::string& strategy) {
  StepTimes plain;
  StepTimes drafting;
  for (const GenerationRecord& record : records) {
    add_times(record, true, curve, plain);
    if (record.key.strategy == strategy) {
      add_times(record, false, curve, drafting);
    }
  }
  if (drafting.draft.empty()) {
    std::swap(drafting.draft, drafting.first);  // all generations had but one step
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
  costs.prompt_token = reading_seconds(drafting, costs);
  costs.other = trusted(drafting.other);
  costs.other[1] = plain.other.begin()->second.value();
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
