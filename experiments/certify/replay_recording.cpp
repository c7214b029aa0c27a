#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/randomness.h"
#include "experiments/certify/certify_models.h"
#include "experiments/certify/certify_replay.h"
#include "experiments/run/arms.h"
#include "experiments/run/prompt_grammars.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/progress.h"

namespace specdec {
namespace {

/// Rows of each strategy.
constexpr int64_t kRows = 48;
constexpr int64_t kPrompts = 8;
/// New tokens on a prompt.
constexpr int64_t kTokens = 24;
/// Rows of one draft: more would be of the same text.
constexpr int64_t kRowsOfDraft = 2;

/// Records the strategies of one group.
class Recorder {
 public:
  Recorder(const Group& group, const ExperimentPlan& plan, ReplayStage& stage)
      : config_(*group.config),
        files_(plan.models->read(config_.weights)),
        loader_(config_.model, plan.models.get()),
        target_(loader_.load(config_.weights, common_adapters(config_))),
        stage_(stage) {}

  /// Appends at most kRows rows, spread over the prompts.
  void record(const Arm& arm, std::vector<ReplayRow>& rows) {
    std::vector<ReplayRow> own;
    int64_t most = 0;
    stage_.see = [&](const Draft& draft, TargetProbs& target) { see(draft, target, most, own); };
    BuildContext context{*target_, loader_, [](const std::string& name, LanguageModel&) {
                           return made_up_cost_curve(name);
                         }};
    const auto strategy = arm.config->make(context);
    int64_t tried = 0;
    for (const auto& prompt : config_.prompts.prompts) {
      if (std::ssize(own) >= kRows || tried == kPrompts) {
        break;
      }
      ++tried;
      most = std::min(kRows, kRows * tried / 4);
      generate(*strategy, arm, prompt);
    }
    stage_.see = {};
    for (auto& row : own) {
      row.point = arm.sweep_point;
      row.strategy = arm.config->name;
      rows.push_back(std::move(row));
    }
  }

 private:
  static void see(const Draft& draft, TargetProbs& target, int64_t most,
                  std::vector<ReplayRow>& rows) {
    int64_t left = std::min(kRowsOfDraft, most - std::ssize(rows));
    for (int64_t node = 0; node < draft.size() && left > 0; ++node) {
      if (!draft.children(node).empty()) {
        rows.push_back(lump_row(draft, target, node));
        --left;
      }
    }
  }

  void generate(DecodingStrategy& strategy, const Arm& arm, const Prompt& prompt) {
    InterruptGuard::check();
    Item item{&prompt};
    std::vector<ChatTurn> history;
    if (!encode_item(config_, files_, item, history) ||
        std::ssize(item.tokens) + kTokens > target_->max_length()) {
      return;
    }
    Task task{item.tokens, config_.sampling, config_.stop, files_.tokenizer.get(),
              arm.config->constraint};
    task.stop.max_new_tokens = std::min(kTokens, task.stop.max_new_tokens);
    if (config_.grammar) {
      task.constraint.grammar =
          grammars_.get(*config_.grammar, prompt, *files_.tokenizer, config_.stop.end_ids).grammar;
    }
    CounterRandomness random(config_.seed, prompt.number);
    (void)strategy.generate(task.request(random));
  }

  const ExperimentConfig& config_;
  const ModelFiles& files_;
  ModelLoader loader_;
  std::unique_ptr<TransformerModel> target_;
  ReplayStage& stage_;
  PromptGrammars grammars_;
};

bool is_recorded(const Arm& arm) {
  return !arm.config->verifier.empty() && arm.config->correction == Correction::kNone;
}

}  // namespace

std::vector<ReplayRow> record_rows(const ExperimentPlan& plan, ReplayStage& stage,
                                   const ReplayOptions& options, std::ostream& log) {
  const c10::InferenceMode guard;
  std::vector<ReplayRow> rows;
  for (const auto& group : group_arms(plan)) {
    const auto arms = std::count_if(group.arms.begin(), group.arms.end(), is_recorded);
    if (group.config->sampling.greedy() || arms == 0) {
      continue;
    }
    Progress progress(log, Progress::choose_style(options.quiet), arms, "strategies");
    Recorder recorder(group, plan, stage);
    for (const auto& arm : group.arms) {
      if (is_recorded(arm)) {
        recorder.record(arm, rows);
        progress.advance("recording " + arm.config->name);
      }
    }
  }
  return rows;
}

}  // namespace specdec
