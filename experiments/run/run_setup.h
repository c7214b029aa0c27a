#pragma once
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "experiments/run/arms.h"
#include "experiments/run/run_folder.h"

namespace specdec {

/// Loads the models of a run, builds its strategies, and finds out what they run on.
class RunSetup {
 public:
  /// Borrows all; the groups borrow its models. Without a log (nullptr) it is silent.
  RunSetup(std::vector<Group>& groups, const ModelCatalog& catalog, RunFolder& folder,
           std::ostream* log)
      : groups_(groups), catalog_(catalog), folder_(folder), log_(log) {}

  /// A resumed run computes with as many threads as it began with. Throws Error: weights that
  /// cannot be loaded, or changed since the run began.
  void load();
  const Environment& environment() const { return environment_; }

 private:
  /// Chooses the threads of the config, of the run that is resumed, or of the profile; 0: measured
  /// later.
  void choose_threads();
  void log_profiles() const;
  void load_group(Group& group);
  void build(Group& group);
  std::shared_ptr<PrefixStore> prefixes(const ExperimentConfig& config);
  CostCurve cost_curve(const Group& group, const std::string& name, LanguageModel& model);
  void note_weights();
  void describe_environment();

  std::vector<Group>& groups_;
  const ModelCatalog& catalog_;
  RunFolder& folder_;
  std::ostream* log_;
  Environment environment_;
  int64_t prefill_threads_ = 0;
  std::map<std::string, std::unique_ptr<ModelLoader>> loaders_;          ///< by loading_key
  std::map<std::string, std::shared_ptr<TransformerModel>> targets_;     ///< by model_key
  std::map<std::string, std::shared_ptr<PrefixStore>> shared_prefixes_;  ///< by model_key and size
};

}  // namespace specdec
