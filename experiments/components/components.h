#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decoders/analysis/cost_curve.h"
#include "decoders/decoding_strategy.h"
#include "decoders/draft_shape.h"
#include "decoders/drafter.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/verifier.h"
#include "experiments/components/cache_room.h"
#include "experiments/components/draft_needs.h"
#include "experiments/components/model_loading.h"
#include "experiments/config/registry.h"

namespace specdec {

struct Components;
class ProfileDefaults;

/// What parts of a strategy say of it while they are prepared, for who reads the strategy.
struct StrategyNotes {
  Promise promise = Promise::kLossless;         ///< the weakest; see note_promise
  std::vector<std::string> uncertified = {};    ///< see note_uncertified
  std::vector<PlannedCache> draft_caches = {};  ///< of its drafters; see check_draft_layers
  std::vector<MeasureDraft> drafts = {};        ///< what its drafters take; see note_head
};

/// What parts of a strategy that drafts say to one another: its tree is prepared first, then its
/// drafter and its verifier, which read what the tree has noted.
struct DraftNotes {
  /// Most children of a drafted token: 1 = chains, the largest number = not known; nullopt =
  /// nothing is drafted. See note_branches.
  std::optional<int64_t> branches = {};
  /// Levels of a tree that branches; 0 = a chain, or not known.
  int64_t branch_levels = 0;
  bool best_only = false;      ///< see note_best_only
  bool hidden_states = false;  ///< see note_hidden_states

  bool has_branches() const { return branches.value_or(1) > 1; }
};

/// What is known of a run before anything is loaded: a component's `prepare` refuses with it what
/// cannot work.
struct RunPlan {
  const Components& components;
  /// Config and tokenizer of the target; nullptr when they could not be read (that is a mistake of
  /// the config already).
  const ModelFiles* target = nullptr;
  ModelCatalog& models;  ///< reads further ones
  SamplingParams sampling;
  int64_t max_new_tokens = 128;
  /// True where the target's multi-token-prediction modules may be used.
  bool include_mtp = true;
  /// True where outputs obey a grammar.
  bool grammar = false;
  /// True where beams draft, whose output the target's first row does not hold.
  bool beams = false;
  /// True where a strategy around the one that is being prepared gives its requests weights (see
  /// DistributionWeights).
  bool weights = false;
  /// What the target's profile says of drafts; nullptr = nothing. See machine_profile.h.
  ProfileDefaults* profile = nullptr;
  const ModelOptions* target_options = nullptr;  ///< nullptr = not known
  /// What its parts note. A copy of a plan has these too: what is prepared apart gets its own.
  std::shared_ptr<StrategyNotes> strategy = std::make_shared<StrategyNotes>();
  std::shared_ptr<DraftNotes> draft = std::make_shared<DraftNotes>();
};

/// A tree that is being prepared gives no drafted token more children than this, on so many levels
/// at most (0 = not known).
void note_branches(const RunPlan& plan, int64_t most, int64_t levels);
/// A tree that is being prepared allows no drawn siblings (DraftShape::allows_drawn), as one
/// that leaves nodes out after their siblings were found.
void note_best_only(const RunPlan& plan);
/// A drafter that is being prepared needs the target's internals or captured layers
/// (Drafter::needs).
void note_hidden_states(const RunPlan& plan);
/// Fails `sample: true` of a drafter under such a tree.
void check_sample(const ConfigNode& node, const RunPlan& plan, std::optional<bool> sample);

/// What a component is built from, once the target is loaded. Lives for the call; the target lives
/// as long as the component.
struct BuildContext {
  LanguageModel& target;
  ModelLoader& models;
  /// The cost curve of a model, measured once and then frozen with the run, by the model's name:
  /// "target" or the folder of a draft model.
  std::function<CostCurve(const std::string& name, LanguageModel& model)> cost_curve;
  /// Set by a drafter that runs a model, so that an adaptive draft length can measure it.
  LanguageModel* draft_model = nullptr;
  std::string draft_model_name = {};
  /// Requests continue one another, as the turns of a chat do: draft models keep what a new request
  /// begins with (PrefixCachedModel).
  bool keeps_prefixes = false;
};

using StrategyRegistry = Registry<DecodingStrategy, BuildContext&>;
using DrafterRegistry = Registry<Drafter, BuildContext&>;
using VerifierRegistry = Registry<Verifier, BuildContext&>;
using ShapeRegistry = Registry<DraftShape, BuildContext&>;
using CacheRegistry = Registry<KvStore, const CacheContext&>;

/// What is known of a cache before it is made.
template <>
struct EntryFacts<KvStore> {
  bool on_mps = true;     ///< Metal has it
  bool traceable = true;  ///< a cache of type tracing can wrap it
  /// Reads the budget from the node of one that keeps pages on disk, or that wraps another cache;
  /// none = all pages lie in memory.
  std::function<TierBudget(const ConfigNode& node, const Components& components)> tiers = {};
};

/// Every name that YAML can use. Copy the built-in ones, add yours, and hand them to run_cli.
struct Components {
  StrategyRegistry strategies{"strategy"};
  DrafterRegistry drafters{"drafter"};
  VerifierRegistry verifiers{"verifier"};
  ShapeRegistry draft_lengths{"draft length"};
  ShapeRegistry trees{"tree"};
  CacheRegistry caches{"cache"};
};

/// What the entry of a cache says; for an unknown type, which is noted elsewhere, nothing.
EntryFacts<KvStore> cache_facts(const ConfigNode& cache, const Components& components);
/// The budget, by that.
TierBudget tier_budget(const ConfigNode& cache, const Components& components);

/// What comes with specdec.
Components builtin_components();

}  // namespace specdec
