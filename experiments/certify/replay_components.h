#pragma once
#include <functional>
#include <memory>

#include "experiments/components/components.h"

namespace specdec {

/// What is put into strategies that are built from replay_components. Nothing is as long as both
/// are empty: then they are the strategies that the config says.
struct ReplayStage {
  /// Sees each draft, with the target's distributions, before the strategy's verifier does.
  std::function<void(const Draft& draft, TargetProbs& target)> see;
  /// Makes what stands for the strategy's drafter.
  std::function<std::unique_ptr<Drafter>()> drafter;
};

/// Copies of the components; what they build heeds the stage.
Components replay_components(const Components& components,
                             const std::shared_ptr<const ReplayStage>& stage);

}  // namespace specdec
