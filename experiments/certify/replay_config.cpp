#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "experiments/certify/certify_models.h"
#include "experiments/certify/certify_replay.h"
#include "experiments/run/arms.h"

namespace specdec {
namespace {

/// Fewer rows of its own say too little about a strategy.
constexpr int64_t kFewRows = 8;

bool is_row_of(const Arm& arm, const ReplayRow& row) {
  return row.strategy == arm.config->name && row.point == arm.sweep_point;
}

/// The rows of one arm; those of all where it has few.
std::vector<ReplayRow> rows_for(const Arm& arm, const std::vector<ReplayRow>& all) {
  std::vector<ReplayRow> own;
  std::copy_if(all.begin(), all.end(), std::back_inserter(own),
               [&](const ReplayRow& row) { return is_row_of(arm, row); });
  return std::ssize(own) < kFewRows ? all : own;
}

ReplayTest replay_arm(const Arm& arm, const ExperimentConfig& config, ReplayStage& stage,
                      const std::vector<ReplayRow>& all, const ReplayOptions& options) {
  const auto rows = rows_for(arm, all);
  ReplayTest test{.point = arm.sweep_point,
                  .strategy = arm.config->name,
                  .promise = arm.config->notes.promise,
                  .rows = std::ssize(rows),
                  .own_rows = std::all_of(rows.begin(), rows.end(), [&](const ReplayRow& row) {
                    return is_row_of(arm, row);
                  })};
  if (rows.empty()) {
    test.not_run = "no drafter of the config proposed anything";
    return test;
  }
  ModelLoader loader(config.model);
  const ReplayMake make = [&](ReplayParts parts) {
    stage.drafter = [&parts] { return std::move(parts.drafter); };
    BuildContext context{parts.target, loader, [](const std::string& name, LanguageModel&) {
                           return made_up_cost_curve(name);
                         }};
    auto strategy = arm.config->make(context);
    stage.drafter = {};
    return strategy;
  };
  try {
    replay(make, rows, options, test);
  } catch (const Error& error) {
    test.not_run = error.what();
  }
  stage.drafter = {};
  return test;
}

}  // namespace

void replay_config(const ExperimentPlan& plan, ReplayStage& stage,
                   const std::vector<ReplayRow>& rows, const ReplayOptions& options,
                   std::vector<ReplayTest>& tests) {
  for (const auto& group : group_arms(plan)) {
    if (group.config->sampling.greedy()) {
      continue;
    }
    for (const auto& arm : group.arms) {
      if (!arm.config->verifier.empty()) {
        tests.push_back(replay_arm(arm, *group.config, stage, rows, options));
      }
    }
  }
}

}  // namespace specdec
