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

/// An entry whose components `build` makes, with the entry's own way to make them.
template <class Registry, class Build>
typename Registry::Entry built_by(typename Registry::Entry entry, Build build) {
  entry.prepare = [prepare = std::move(entry.prepare), build](
                      const ConfigNode& node, const RunPlan& plan) -> typename Registry::Make {
    auto make = prepare(node, plan);
    if (!make) {
      return {};
    }
    return [make = std::move(make), build](BuildContext& context) { return build(make, context); };
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
  all.caches = components.caches;
  const auto watched = [stage](const VerifierRegistry::Make& make,
                               BuildContext& context) -> std::unique_ptr<Verifier> {
    auto verifier = make(context);
    return stage->see ? std::make_unique<WatchedVerifier>(std::move(verifier), stage)
                      : std::move(verifier);
  };
  const auto replaced = [stage](const DrafterRegistry::Make& make, BuildContext& context) {
    return stage->drafter ? stage->drafter() : make(context);
  };
  for (const auto& [name, entry] : components.verifiers.entries()) {
    all.verifiers.add(name, built_by<VerifierRegistry>(entry, watched));
  }
  for (const auto& [name, entry] : components.drafters.entries()) {
    all.drafters.add(name, built_by<DrafterRegistry>(entry, replaced));
  }
  return all;
}

}  // namespace specdec
