#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/certify/certify_config.h"
#include "experiments/run/arms.h"
#include "experiments/run/prompt_grammars.h"
#include "experiments/terminal/progress.h"

namespace specdec {

struct GroupOptions {
  const ConfigCertifyOptions& config;
  double level = kFalseAlarm;  ///< of one test
};

/// Tests one group of a plan: strategies that share model, sampling and prompts.
class GroupCertifier {
 public:
  /// Loads the target twice: once for the strategies, once for plain forwards. Throws ConfigError
  /// for strategies that correct their distribution, Error when no prompt fits.
  GroupCertifier(const Group& group, const ExperimentPlan& plan, const GroupOptions& options);

  int64_t left_out() const { return left_out_; }
  /// Number of generations that are to come, about.
  int64_t work() const;
  /// Appends a test of each strategy (greedy, searches), or several.
  void run(std::vector<ConfigTest>& tests, Progress& progress);

 private:
  struct EncodedPrompt {
    std::string id;
    uint32_t number = 0;
    std::vector<Token> tokens;
    std::shared_ptr<const CompiledGrammar> grammar = {};  ///< that its outputs obey, if any
    std::vector<Token> greedy = {};   ///< what plain decoding gives, once it is known
    std::optional<Token> first = {};  ///< new token that all compared outputs begin with
    std::optional<SequenceDistribution> plain = {};  ///< of outputs that begin so
  };

  bool greedy() const { return config_.sampling.greedy(); }
  void encode_prompts();
  std::shared_ptr<const CompiledGrammar> grammar(const Prompt& prompt);
  /// Prompts that the chi-square test takes.
  int64_t compared_prompts() const;
  int64_t tokens_to_draw() const;
  /// False-positive rate of one of the draws of a test of positions.
  double draw_level() const { return options_.level / kDraws; }
  /// Number of texts that have tokens_to_draw() tokens, about.
  int64_t planned_texts() const;

  std::unique_ptr<DecodingStrategy> build(const Arm& arm, LanguageModel& target);
  /// What an arm is asked; it may use the prompt's grammar in its own way.
  Task task(const EncodedPrompt& prompt, const Arm& arm) const;
  ConfigTest new_test(const Arm& arm) const;
  /// Appends what `run` gives, unless an earlier call finished `wanted`; `work`: its generations.
  template <class Run>
  void append_test(std::vector<ConfigTest>& tests, const ConfigTest& wanted, int64_t work,
                   Progress& progress, const Run& run);
  int64_t planned_samples() const;
  Generation generate(DecodingStrategy& strategy, const Task& task, const EncodedPrompt& prompt,
                      int64_t sample) const;

  ConfigTest test_positions_of(const Arm& arm, Progress& progress);
  /// How many when a test of the first texts tells too little; 0: no other texts would help.
  int64_t tokens_to_draw_anew(const PositionTest& test) const;
  /// Texts of `wanted` tokens together, from sample `first` on.
  std::vector<DrawnText> draw_texts(const Arm& arm, int64_t wanted, int64_t first,
                                    Progress& progress);

  ConfigTest test_cells(const Arm& arm, EncodedPrompt& prompt, Progress& progress);
  /// Sets `first` and `plain`.
  void find_cells(EncodedPrompt& prompt, const Task& asked);
  int64_t samples_of(const EncodedPrompt& prompt) const;
  OutputCounts draw_beginnings(const Arm& arm, const EncodedPrompt& prompt, int64_t samples,
                               Progress& progress);

  ConfigTest test_greedy(const Arm& arm, Progress& progress);
  Task fitting(Task asked) const;
  TokenDivergence find_cause(const Arm& arm, const EncodedPrompt& prompt,
                             const std::vector<Token>& other, int64_t position);

  const Group& group_;
  const ExperimentConfig& config_;
  const GroupOptions options_;
  const ModelFiles& files_;
  ModelLoader loader_;
  std::unique_ptr<TransformerModel> target_;
  std::unique_ptr<TransformerModel> reference_;
  PlainLogits plain_;
  PromptGrammars grammars_;
  std::vector<EncodedPrompt> prompts_;
  int64_t left_out_ = 0;
};

}  // namespace specdec
