#include "experiments/train/head_trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "core/ascii.h"
#include "core/error.h"
#include "core/families/model.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/tensor_source.h"
#include "core/transformer/tensor_writer.h"
#include "experiments/config/new_folder.h"
#include "experiments/train/head_evaluation.h"
#include "experiments/train/head_loss.h"
#include "experiments/train/training_folder.h"
#include "experiments/train/training_loop.h"

namespace specdec {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int64_t kQuickHeadWindows = 12;
constexpr double kAlways = 1e30;  // more than any token's share

using Accuracies = std::map<std::string, std::vector<DepthAccuracy>>;

/// Figures and a line of them by kind; with the recall of a head that has groups.
HeldOutReport report(const Accuracies& kinds, bool grouped) {
  HeldOutReport out{.figures = json::object(), .text = {}};
  for (const auto& [kind, depths] : kinds) {
    json& figures = out.figures[kind];
    figures = {{"tokens", depths.empty() ? 0 : depths.front().tokens},
               {"coverage", depths.empty() ? 0.0 : depths.front().coverage},
               {"agreement", json::array()},
               {"overlap", json::array()}};
    std::string agreement;
    std::string overlap;
    for (const DepthAccuracy& depth : depths) {
      figures["agreement"].push_back(depth.agreement);
      figures["overlap"].push_back(depth.overlap);
      agreement += fmt::format(" {:.3f}", depth.agreement);
      overlap += fmt::format(" {:.3f}", depth.overlap);
      if (grouped) {
        figures["recall"].push_back(depth.recall);
      }
    }
    out.text += fmt::format("  [{}: agreement{}, 1-TV{}]", kind, agreement, overlap);
  }
  return out;
}

class HeadTrainer {
 public:
  HeadTrainer(const HeadTrainConfig& config, const TrainOptions& options)
      : config_(config), options_(options), made_(config.out) {
    make_training_folder(made_, FolderWork::kTraining);
    begin_training(config.out);
    LoadOptions load;
    load.dtype = at::kFloat;
    load.place = placement_on(options.device);
    target_ = load_model_tensors(config.target, load);
    tokenizer_ = load_tokenizer(config.target);
    if (config.answers.folder.empty()) {
      data_ = std::make_unique<TextData>(config.text, *tokenizer_);
    } else {
      answers_ = std::make_unique<AnswerSet>(config.answers.folder,
                                             require_answers(config.answers, config.shape.layers),
                                             *target_, config.text.held_out);
      say(answers_->text());
    }
    head_ = make_head_training(config.shape, {.target = target_,
                                              .token_weights = token_weights(),
                                              .seed = config.text.seed,
                                              .matmul_dtype = matmul_dtype(),
                                              .target_name = config.target.string()});
    if (config.self_distillation.share > 0.0) {
      generated_ = self_generate(decoding_target(), *data_, config.text, config.self_distillation,
                                 options.log);
    }
    made_.keep();
  }

  void run() {
    TrainingTask task{.name = config_.name,
                      .out = config_.out,
                      .schedule = config_.schedule,
                      .identity = identity(),
                      .matrices = {},
                      .others = {},
                      .train_tokens = train_tokens(),
                      .tokens_per_step = tokens_per_step(),
                      .loss = [this](int64_t step) { return loss(step); },
                      .evaluate =
                          [this] {
                            fs::create_directories(config_.out / kSoFar);
                            head_->save(config_.out / kSoFar);
                            return evaluate(kQuickHeadWindows);
                          },
                      .finish =
                          [this] {
                            head_->save(config_.out);
                            head_->load(config_.out);
                            fs::remove_all(config_.out / kSoFar);
                            return evaluate(0);
                          },
                      .log = options_.log};
    head_->collect(task.matrices, task.others);
    run_training(task);
    if (answers_) {
      fs::remove(masses_file());
    }
  }

 private:
  void say(const std::string& line) const {
    if (options_.log) {
      options_.log(line);
    }
  }

  int64_t train_tokens() const {
    return answers_ ? answers_->train_tokens() : data_->train_tokens();
  }

  int64_t tokens_per_step() const {
    return answers_
               ? config_.text.batch_size * answers_->train_tokens() / std::ssize(answers_->train())
               : config_.text.batch_size * config_.text.sequence_length;
  }

  fs::path masses_file() const {
    return config_.out / fmt::format("masses_{}.safetensors", train_tokens());
  }

  /// Kept until the training ends: it resumes with the same draft vocabulary, however many threads
  /// sum.
  at::Tensor answer_masses() const {
    const fs::path file = masses_file();
    if (!fs::exists(file)) {
      TensorWriter writer(at::kDouble);
      writer.add("masses", answers_->masses());
      writer.write(file);
    }
    TensorSource source(CheckpointTensors(config_.out, file.filename().string()), Placement{});
    return source.load("masses", {target_->config.vocab_size}, at::kDouble);
  }

  /// End-of-sequence tokens, the newline and digits are in every draft vocabulary of answers.
  at::Tensor token_weights() const {
    const int64_t vocab = target_->config.vocab_size;
    if (!answers_) {
      return data_->frequencies(vocab);
    }
    if (config_.shape.draft_vocab_size == 0) {
      return {};
    }
    at::Tensor weights = answer_masses();
    auto* values = weights.mutable_data_ptr<double>();
    const std::vector<Token>& ends = target_->config.end_ids;
    for (Token token = 0; token < vocab; ++token) {
      const std::string_view bytes = tokenizer_->token_bytes(token);
      const bool digit = bytes.size() == 1 && is_digit(bytes[0]);
      if (digit || bytes == "\n" || std::find(ends.begin(), ends.end(), token) != ends.end()) {
        values[token] += kAlways;
      }
    }
    return weights;
  }

  /// The target as it decodes, on the CPU.
  std::shared_ptr<const TransformerWeights> decoding_target() const {
    return load_model(config_.target, {.dtype = at::kFloat});
  }

  std::optional<at::ScalarType> matmul_dtype() const {
    return config_.bfloat16_products ? std::optional(at::kBFloat16) : std::nullopt;
  }

  /// The text's batch, its first rows replaced by what the target wrote.
  at::Tensor tokens(int64_t step) const {
    at::Tensor batch = data_->batch(step);
    const double share = config_.self_distillation.share * static_cast<double>(batch.size(0));
    const auto own = static_cast<int64_t>(std::lround(share));
    std::mt19937_64 generator(config_.text.seed * 0xD1B54A32D192ED03U +
                              static_cast<uint64_t>(step));
    for (int64_t row = 0; row < own; ++row) {
      const auto all = static_cast<uint64_t>(generated_.train.size(0));
      batch[row].copy_(generated_.train[static_cast<int64_t>(generator() % all)]);
    }
    return batch;
  }

  at::Tensor loss(int64_t step) const {
    const auto batch =
        answers_ ? answers_->batch(step, config_.text.batch_size, config_.text.seed)
                 : target_batch(*target_, tokens(step).to(options_.device), matmul_dtype());
    return head_loss(*head_, batch, config_.loss, *target_);
  }

  HeldOutReport evaluate(int64_t max_windows) const {
    const bool grouped = head_->groups().tokens.defined();
    if (answers_) {
      return report(evaluate_head(*head_, *target_, *answers_, config_, max_windows), grouped);
    }
    return report(evaluate_head(*head_, *target_, *data_, generated_, config_, max_windows),
                  grouped);
  }

  std::string identity() const {
    const auto& distillation = config_.self_distillation;
    json out = {{"version", 3},  // of losses and initial values
                {"head", head_identity(config_.shape, config_.loss)},
                {"target", target_->fingerprint},
                {"seed", config_.text.seed},
                {"sequence_length", config_.text.sequence_length},
                {"batch_size", config_.text.batch_size},
                {"tokens", train_tokens()},
                {"answers", answers_ ? read_answer_identity(config_.answers.folder) : ""},
                {"steps", config_.schedule.steps},
                {"warm_up_steps", config_.schedule.warm_up_steps},
                {"rate", config_.schedule.learning_rate},
                {"decay", config_.schedule.weight_decay},
                {"share", distillation.share},
                {"sequences", distillation.share > 0.0 ? distillation.sequences : 0},
                {"prompt_tokens", distillation.prompt_tokens},
                {"temperatures", distillation.temperatures},
                {"bfloat16", config_.bfloat16_products}};
    if (!target_->config.suppressed_ids.empty()) {
      out["suppressed"] = target_->config.suppressed_ids;
      if (distillation.share > 0.0) {  // those of older states had them
        out["suppressed_in_sequences"] = true;
      }
    }
    return out.dump();
  }

  const HeadTrainConfig& config_;
  const TrainOptions& options_;
  NewFolder made_;
  std::shared_ptr<const TransformerTensors> target_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TextData> data_;      // one of these
  std::unique_ptr<AnswerSet> answers_;  // two
  SelfGenerated generated_;
  std::unique_ptr<HeadTraining> head_;
};

}  // namespace

void train_head(const HeadTrainConfig& config, const TrainOptions& options) {
  HeadTrainer(config, options).run();
}

}  // namespace specdec
