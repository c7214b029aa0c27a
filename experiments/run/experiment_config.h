#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/prefix_store.h"
#include "decoders/draft_trace.h"
#include "decoders/grammar_correction.h"
#include "experiments/components/cache_room.h"
#include "experiments/components/components.h"
#include "experiments/components/machine_profile.h"
#include "experiments/grammar/grammar_config.h"
#include "experiments/run/prompts_config.h"
#include "experiments/run/quality_config.h"

namespace specdec {

struct StrategyConfig {
  std::string name;
  std::string type;
  StrategyNotes notes = {};  ///< what the strategy and its parts say of it
  StrategyRegistry::Make make;
  std::string verifier = {};  ///< type of the verifier; "" when it has none
  std::string yaml;           ///< resolved
  /// How the strategy uses the experiment's grammar; Constraint::grammar is not set yet.
  Constraint constraint = {};
  Correction correction = Correction::kNone;
};

/// The map `prefix_cache:`: keys and values of earlier texts, which prompts may begin with.
struct PrefixCacheConfig {
  int64_t megabytes = 0;  ///< of each strategy; 0 = none are kept
  bool shared = false;    ///< one cache for all strategies, who then find each other's texts
  StatesPolicy states = StatesPolicy::kKeep;  ///< hidden states of prompts, for drafters on them
};

/// One set of settings, checked; nothing is loaded yet.
struct ExperimentConfig {
  std::filesystem::path weights;  ///< of the target
  ModelOptions model;
  int64_t threads = 0;  ///< 0 = measured when the model is loaded
  uint64_t seed = 0;
  SamplingParams sampling;
  StopRule stop;  ///< with the model's end ids, unless stop.ignore_eos
  PromptsConfig prompts;
  std::optional<GrammarConfig> grammar = {};  ///< that all outputs obey
  std::vector<StrategyConfig> strategies;
  int64_t repeats = 1;
  int64_t warm_up = 1;
  QualityConfig quality = {};
  bool cut_loops = false;     ///< `loops: cut`: figures are of the text before a loop begins
  bool log_overlaps = false;  ///< `log: {overlap: true}`
  std::optional<TraceOptions> trace = {};  ///< record drafters at every position of the text
  std::string workload;  ///< resolved YAML of all but strategies: what two of them must share to be
                         ///< compared
  PrefixCacheConfig prefix_cache = {};
  std::string machine_profile = {};  ///< see Environment
};

/// The settings at one point of the grid.
struct SweepPoint {
  std::string label;  ///< "draft_length=4, temperature=0.8"; "" when there is no sweep
  std::vector<std::string> values;  ///< of the sweep's keys, in their order
  ExperimentConfig config;
  std::string condition = {}, choice = {};  ///< the label's two parts, by is_condition
};

/// A whole config file: one point, or the grid of its sweep.
struct ExperimentPlan {
  std::string name;
  std::string description;
  std::vector<std::string> sweep_keys;
  std::vector<SweepPoint> points;
  std::string yaml;  ///< resolved: defaults and overrides included
  std::shared_ptr<ModelCatalog> models;
  ConfigNode root;  ///< all keys, read: what `yaml` is written from
};

/// Reads and checks a config file with its overrides ("a.b=value"). Reads prompts, model configs
/// and tokenizers, but no weights. Throws ConfigError with all mistakes.
ExperimentPlan load_experiment(const std::filesystem::path& file,
                               const std::vector<std::string>& overrides,
                               const Components& components);

/// The keys type, weights, adapters, machine_profile, dtype, activations, kv_dtype, device,
/// cuda_graphs, prefill_graphs, prefill_products, max_length, cache, include_mtp,
/// verify_consistent, memory_limit,
/// layer_file, active_layers. What they leave open `profile` gives, which becomes that of the
/// weights. `files`, of the active layers, is nullptr when they cannot be read.
std::filesystem::path read_model(const ConfigNode& node, const Components& components,
                                 ModelCatalog& catalog, ModelOptions& options,
                                 const ModelFiles*& files, ProfileDefaults& profile);
/// The keys name and those of the strategy's type; without a name it is called by its type.
StrategyConfig read_strategy(const ConfigNode& node, const RunPlan& plan,
                             const Components& components);

}  // namespace specdec
