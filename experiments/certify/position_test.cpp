#include "experiments/certify/position_test.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/randomness.h"
#include "decoders/analysis/test_power.h"
#include "decoders/session.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

/// Seeds of drafters that draw, other than those of the texts.
constexpr uint64_t kTraceSeed = 0x7472616365;
constexpr uint64_t kControlSeed = 0x636f6e74726f6c;

/// The trace of a drafter that proposes the target's most likely token everywhere.
DraftTrace trace_target(LanguageModel& target, const Request& request, TokenSpan output) {
  DraftTrace trace{.depth = 1};
  Session session(request, target);
  (void)target.prefill(request.prompt, {});
  session.commit_given(output.front());
  for (size_t next = 1; next < output.size() && !session.finished(); ++next) {
    const Draft root = Draft::root(session.newest());
    TargetProbs& at_root = session.target_probs(root, target.verify(root, {}));
    const Token best = at_root.best(0);
    const double mass = at_root.probability(0, best);
    trace.positions.push_back({.drafted = 1,
                               .depths = {{.p = at_root.probability(0, output[next]),
                                           .overlap = mass,
                                           .favoured = mass,
                                           .is_favoured = output[next] == best}}});
    target.commit(std::vector<int64_t>{0});
    session.commit_given(output[next]);
  }
  return trace;
}

/// The drafter's bias along all texts; none when there is no drafter, or none whose chains can be
/// traced.
std::optional<DraftBias> bias_of_drafter(const std::vector<DrawnText>& texts,
                                         DecodingStrategy& tracer) {
  DraftBias bias;
  for (size_t i = 0; i < texts.size(); ++i) {
    InterruptGuard::check();
    CounterRandomness random(kTraceSeed, 0, static_cast<uint32_t>(i));
    if (!bias.add_text(tracer, texts[i].task.request(random), texts[i].output)) {
      return std::nullopt;
    }
  }
  return bias;
}

DraftBias bias_of_target(const std::vector<DrawnText>& texts, LanguageModel& target) {
  DraftBias bias;
  CounterRandomness random(kTraceSeed);
  for (const DrawnText& text : texts) {
    InterruptGuard::check();
    bias.add(trace_target(target, text.task.request(random), text.output));
  }
  return bias;
}

double checked_share(const std::vector<DrawnText>& texts) {
  int64_t checked = 0;
  int64_t committed = 0;
  for (const DrawnText& text : texts) {
    for (const StepStatistics& step : text.steps) {
      if (step.drafted > 0) {
        committed += step.committed;
        checked += std::min(step.committed, step.accepted + (step.accepted < step.depth ? 1 : 0));
      }
    }
  }
  return committed == 0 ? 1.0 : static_cast<double>(checked) / static_cast<double>(committed);
}

/// Sum over the places of what a mistake in all drafts adds to the probability of A.
enum class Control { kAcceptAll, kTargetResidual };
double added(const BiasPlace& place, Control control) {
  return control == Control::kAcceptAll ? place.excess : place.excess * place.mass;
}
double added(const DraftBias& bias, Control control) {
  double sum = 0.0;
  for (const BiasPlace& place : bias.places()) {
    sum += added(place, control);
  }
  return sum;
}

/// Whether texts with the mistake in this share of the drafts are blamed with kPower.
bool finds(const DraftBias& bias, Control control, double share, double critical) {
  constexpr int kTrials = 100;
  CounterRandomness random(kControlSeed);
  const double variance = bias.variance();
  int found = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    double shift = 0.0;
    for (const BiasPlace& place : bias.places()) {
      shift += (random.bernoulli(place.mass + share * added(place, control)) ? 1.0 : 0.0);
      shift -= place.mass;
    }
    found += shift * shift > critical * variance ? 1 : 0;
  }
  return found >= kPower * kTrials;
}

std::optional<double> smallest_found(const DraftBias& bias, Control control, double checked,
                                     double critical) {
  constexpr std::array kGrades = {0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0};
  if (bias.variance() == 0.0) {
    return std::nullopt;
  }
  const auto* found = std::find_if(kGrades.begin(), kGrades.end(), [&](double grade) {
    return finds(bias, control, grade * checked, critical);
  });
  return found == kGrades.end() ? std::nullopt : std::optional<double>(*found);
}

}  // namespace

BiasControls find_controls(const DraftBias& bias, double checked, double false_positives) {
  const double critical = critical_value({1, false_positives});
  return {smallest_found(bias, Control::kAcceptAll, checked, critical),
          smallest_found(bias, Control::kTargetResidual, checked, critical)};
}

int64_t PositionTest::tokens_needed(double false_positives) const {
  const double least =
      checked * std::min(added(bias, Control::kAcceptAll), added(bias, Control::kTargetResidual));
  if (least <= 0.0) {
    return 0;
  }
  const double times =
      noncentrality({1, false_positives}, kPower) * bias.variance() / (least * least);
  const double tokens = std::ceil(times * static_cast<double>(bias.tokens()));
  constexpr double kOutOfReach = 1e7;
  return tokens < kOutOfReach ? static_cast<int64_t>(tokens) : 0;
}

PositionTest test_positions(const std::vector<DrawnText>& texts, DecodingStrategy& tracer,
                            LanguageModel& target, double false_positives) {
  PositionTest test{.bias = {}, .texts = static_cast<int64_t>(texts.size())};
  if (auto bias = bias_of_drafter(texts, tracer)) {
    test.bias = *std::move(bias);
    test.checked = checked_share(texts);
  } else {
    test.bias = bias_of_target(texts, target);
    test.by_target = true;
  }
  test.visible = test.bias.visible_total_variation(false_positives, kPower);
  test.controls = find_controls(test.bias, test.checked, false_positives);
  return test;
}

}  // namespace specdec
