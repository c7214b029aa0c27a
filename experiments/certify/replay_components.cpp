#include "experiments/certify/replay_components.h"

#include <utility>

namespace specdec {
namespace {

/// A verifier that decides as another does, and shows what it decides about.
class WatchedVerifier final : public Verifier {
 public:
  WatchedVerifier(std::unique_ptr<Verifier> verifier, std::shared_ptr<const ReplayStage> stage)
      : verifier_(std::move(verifier)), stage_(std::move(stage)) {}
  void check(const SamplingParams& sampling) const override { verifier_->check(sampling); }
  bool allows_trees() const override { return verifier_->allows_trees(); }
  bool accepts_impossible() const override { return verifier_->accepts_impossible(); }
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t position,
                      Randomness& random) const override {
    if (stage_->see) {
      stage_->see(draft, target);
    }
    return verifier_->verify(draft, target, position, random);
  }

 private:
  std::unique_ptr<Verifier> verifier_;
  std::shared_ptr<const ReplayStage> stage_;
};

VerifierRegistry::Entry watched(VerifierRegistry::Entry entry,
                                const std::shared_ptr<const ReplayStage>& stage) {
  entry.prepare = [prepare = std::move(entry.prepare), stage](
                      const ConfigNode& node, const RunPlan& plan) -> VerifierRegistry::Make {
    auto make = prepare(node, plan);
    if (!make) {
      return {};
    }
    return [make = std::move(make), stage](BuildContext& context) -> std::unique_ptr<Verifier> {
      auto verifier = make(context);
      return stage->see ? std::make_unique<WatchedVerifier>(std::move(verifier), stage)
                        : std::move(verifier);
    };
  };
  return entry;
}

DrafterRegistry::Entry replaced(DrafterRegistry::Entry entry,
                                const std::shared_ptr<const ReplayStage>& stage) {
  entry.prepare = [prepare = std::move(entry.prepare), stage](
                      const ConfigNode& node, const RunPlan& plan) -> DrafterRegistry::Make {
    auto make = prepare(node, plan);
    if (!make) {
      return {};
    }
    return [make = std::move(make), stage](BuildContext& context) {
      return stage->drafter ? stage->drafter() : make(context);
    };
  };
  return entry;
}

}  // namespace

Components replay_components(const Components& components,
                             const std::shared_ptr<const ReplayStage>& stage) {
  Components all;
  all.strategies = components.strategies;
  all.draft_lengths = components.draft_lengths;
  all.trees = components.trees;
  for (const auto& [name, entry] : components.verifiers.entries()) {
    all.verifiers.add(name, watched(entry, stage));
  }
  for (const auto& [name, entry] : components.drafters.entries()) {
    all.drafters.add(name, replaced(entry, stage));
  }
  return all;
}

}  // namespace specdec
