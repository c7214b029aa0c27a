#pragma once
#include <ATen/Parallel.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "experiments/cli/commands.h"
#include "experiments/components/components.h"
#include "experiments/components/machine_measurement.h"
#include "experiments/components/model_loading.h"
#include "experiments/simulate/profile.h"
#include "experiments/terminal/json_option.h"

namespace specdec {

/// What `specdec profile` was asked to time.
struct ProfileArguments {
  std::string model, contexts = "16,128,512", lengths = "1,2,4,8";
  std::string new_tokens = "1,2,3,4,5,6,8,12,16,32";
  JsonOption json;
  std::vector<std::string> drafters;
  bool random_weights = false;
  bool by_layer = false;
  std::vector<double> acceptance;
  double draft_cost = 0.0;
  bool saves = false;       ///< a file beside the model, see machine_profile.h
  std::string prompt_file;  ///< text on which draft lengths are compared for it
  int64_t repeats = 20;
  SamplingParams sampling;
};

/// What --prompt-file holds.
std::string compared_text(const ProfileArguments& arguments);

/// Times a model's forwards, and steps of drafters.
class Profiler {
 public:
  Profiler(const CommandContext& context, const ProfileArguments& arguments);

  Profile run();
  /// Of random weights, layer by layer: nothing of the whole model's size is loaded.
  Profile run_by_layer();
  /// After run(): measures what the file beside the model says, writes it, and returns what was
  /// found, a line each.
  std::vector<std::string> save();

 private:
  /// A drafter at one of the lengths.
  struct Arm {
    size_t drafter = 0;
    std::unique_ptr<DecodingStrategy> strategy;
    int64_t length = 0;
  };
  CostCurveOptions curve_options() const;
  /// Throws Error where no forward after any of the contexts fits; says which do not.
  void check_contexts(const CostCurveOptions& options, int64_t max_length) const;
  std::string machine(const std::string& formats) const;
  std::vector<Arm> build_arms();
  void measure_steps(const std::vector<Token>& prompt, Profile& profile);
  StrategyRegistry::Make prepare(const std::shared_ptr<YamlTree>& tree);
  std::vector<Token> text_tokens();
  std::vector<TimedChoice> compare_lengths();

  const CommandContext& context_;
  const ProfileArguments& arguments_;
  ModelCatalog catalog_;
  ModelLoader loader_;
  std::unique_ptr<TransformerModel> target_;
  const int64_t most_threads_ = at::get_num_threads();  ///< loading may choose fewer
};

}  // namespace specdec
