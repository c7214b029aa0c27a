#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "core/kernels/kept_results.h"

namespace specdec {

/// Where what a head does in the steps of a draft has its results, those of a step over those of
/// the one before, so that a graph may hold the steps.
class StepMemory {
 public:
  /// Memory for steps of up to `nodes` nodes.
  StepMemory(const std::shared_ptr<Ops>& ops, int64_t nodes)
      : gathered_(ops, nodes), entering_(ops, nodes), leaving_(ops, nodes) {}

  /// Ops whose results are what a step's nodes follow, what its layers are fed, or what becomes of
  /// theirs. Each call begins with the first result again.
  Ops& gathered() { return begun(gathered_); }
  Ops& entering() { return begun(entering_); }
  Ops& leaving() { return begun(leaving_); }

 private:
  static Ops& begun(KeptResults& results);

  KeptResults gathered_, entering_, leaving_;
};

/// The memory of drafts of all widths: what lies in it never moves, and all of it takes at most
/// twice that of the widest one.
class StepMemories {
 public:
  explicit StepMemories(std::shared_ptr<Ops> ops) : ops_(std::move(ops)) {}
  /// Memory of steps of up to `nodes` nodes.
  StepMemory& of(int64_t nodes);

 private:
  std::shared_ptr<Ops> ops_;
  std::map<int64_t, StepMemory> by_room_;
};

/// The features [k, width] that the nodes of a step follow, rows `parents` of those of the step
/// before, as DraftSteps::parents_in_step has them; `features` as they are where that is undefined.
Tensor followed_features(Ops& ops, const Tensor& features, const Tensor& parents);

}  // namespace specdec
