#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/prefix_store.h"
#include "experiments/metrics/metrics.h"
#include "experiments/run/experiment_config.h"

namespace specdec {

/// One strategy at one point of the sweep.
struct Arm {
  std::string sweep_point = {};
  const StrategyConfig* config = nullptr;
  std::unique_ptr<DecodingStrategy> strategy = nullptr;
  /// A second instance of the strategy, to trace its own texts: what a drafter remembers of one
  /// text must not hold that text already. nullptr unless traces_loss.
  std::unique_ptr<DecodingStrategy> tracer = nullptr;
  /// Keys and values of earlier texts; nullptr: none are kept.
  std::shared_ptr<PrefixStore> prefixes = nullptr;
};

/// Arms that share model, prompts and sampling: they take a prompt one right after the other.
struct Group {
  const ExperimentConfig* config = nullptr;
  std::string name = {};  ///< of its first point
  ModelLoader* loader = nullptr;
  std::shared_ptr<TransformerModel> target = nullptr;  ///< one for all groups of the same model_key
  std::vector<Arm> arms = {};                          ///< borrow the target
};

/// A prompt to continue at one place of the run.
struct Item {
  const Prompt* prompt = nullptr;
  size_t turn = 0;
  int64_t repeat = 0;
  int64_t order = 0;  ///< decides which strategy comes first
  std::vector<Token> tokens = {};

  GenerationKey key(const Arm& arm) const;
};

/// All arms of a plan; one whose settings an earlier point has run already is left out.
std::vector<Group> group_arms(const ExperimentPlan& plan);

/// What configs must have in common to run on the same loaded model: weights, formats, device,
/// threads.
std::string model_key(const ExperimentConfig& config);
/// The adapters that all prompts of a config run with. Throws ConfigError where they differ.
std::vector<AdapterChoice> common_adapters(const ExperimentConfig& config);
/// Keys of a sweep that make several models necessary, whose points cannot alternate; in order.
std::vector<std::string> model_keys_of_sweep(const ExperimentPlan& plan);

/// All that a group runs in turns and repeats, without tokens; those that will turn out too long
/// too.
std::vector<Item> items_of(const Group& group);
/// Turns of a prompt that are run.
size_t count_turns(const ExperimentConfig& config, const Prompt& prompt);
/// Sets the item's tokens and adds its turn to the history; false when they are too long.
bool encode_item(const ExperimentConfig& config, const ModelFiles& target, Item& item,
                 std::vector<ChatTurn>& history);
/// What each arm's prefixes saved, for the report; nothing for arms without. A resumed run counts
/// what it did itself.
std::vector<std::string> prefix_notes(const std::vector<Group>& groups);
/// What a generation answered, without the token or text that ended it.
std::string reply_text(const Generation& generation, const Tokenizer* tokenizer);

/// config.yaml of the run folder: the resolved config, whose relative paths lead there from the
/// folder, so that it can be run again; and what tells its prompts apart.
std::string run_config_text(const ExperimentPlan& plan, const std::vector<Group>& groups,
                            const std::filesystem::path& folder);
/// Tells prompts files apart (FNV-1a).
uint64_t hash_prompts(const std::vector<Prompt>& prompts);

}  // namespace specdec
