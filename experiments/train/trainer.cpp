#include "experiments/train/trainer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/families/gemma/weights.h"
#include "core/families/model.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/decay_parameter.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/reference.h"
#include "core/transformer/weights.h"
#include "experiments/config/new_folder.h"
#include "experiments/train/evaluation.h"
#include "experiments/train/expert_balance.h"
#include "experiments/train/model_shape.h"
#include "experiments/train/text_data.h"
#include "experiments/train/tokenizer_training.h"
#include "experiments/train/training_folder.h"
#include "experiments/train/training_loop.h"
#include "experiments/train/unlikelihood.h"

namespace specdec {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kTokenizerFiles[] = {"tokenizer.model", "tokenizer.json",
                                           "tokenizer_config.json"};
constexpr int64_t kQuickWindows = 24;
// Tokens of the greedy continuations that sequence unlikelihood looks at.
constexpr int64_t kPromptTokens = 32;
constexpr int64_t kNewTokens = 160;

void make_tokenizer(const TrainConfig& config) {
  if (!config.tokenizer_from.empty()) {
    for (const char* file : kTokenizerFiles) {
      if (fs::exists(config.tokenizer_from / file)) {
        fs::copy_file(config.tokenizer_from / file, config.out / file,
                      fs::copy_options::overwrite_existing);
      }
    }
    return;
  }
  TokenizerTraining training;
  training.vocab_size = config.tokenizer_vocab_size;
  for (const TextSource& source : config.text.sources) {
    training.texts.push_back(split_text(source, config.text.held_out).train);
  }
  train_tokenizer(training, config.out);
}

json evaluation_json(const std::map<std::string, Evaluation>& kinds) {
  json out = json::object();
  for (const auto& [kind, evaluation] : kinds) {
    out[kind] = {{"tokens", evaluation.tokens}, {"bits_per_byte", evaluation.bits_per_byte}};
    if (evaluation.agreement) {
      out[kind]["agreement"] = *evaluation.agreement;
      out[kind]["overlap"] = *evaluation.overlap;
    }
  }
  return out;
}

std::string evaluation_text(const std::map<std::string, Evaluation>& kinds) {
  std::string text;
  for (const auto& [kind, evaluation] : kinds) {
    text += fmt::format("  {} {:.3f} bits/byte", kind, evaluation.bits_per_byte);
    if (evaluation.agreement) {
      text += fmt::format(" (agreement {:.3f}, 1-TV {:.3f})", *evaluation.agreement,
                          *evaluation.overlap);
    }
  }
  return text;
}

class Trainer {
 public:
  Trainer(const TrainConfig& config, const TrainOptions& options)
      : config_(config), options_(options), made_(config.out) {
    make_training_folder(made_, FolderWork::kTraining);
    begin_training(config.out);
    make_tokenizer(config_);
    tokenizer_ = load_tokenizer(config.out);
    config_.model = shape_with_vocabulary(config_.model, tokenizer_->vocab_size());
    data_ = std::make_unique<TextData>(config_.text, *tokenizer_);
    load_teacher();
    model_ = initial_weights();
    if (config_.continuation_share > 0.0) {
      continuations_ = std::make_unique<SequenceUnlikelihood>(model_);
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
                      .train_tokens = data_->train_tokens(),
                      .tokens_per_step = config_.text.batch_size * config_.text.sequence_length,
                      .loss = [this](int64_t step) { return loss(step); },
                      .evaluate =
                          [this] {
                            set_decays();
                            return report(*model_, kQuickWindows);
                          },
                      .finish = [this] { return store(); },
                      .log = options_.log};
    take_parameters(task);
    run_training(task);
  }

 private:
  void load_teacher() {
    if (config_.teacher.empty()) {
      return;
    }
    LoadOptions load;
    load.dtype = at::kFloat;
    load.place = placement_on(options_.device);
    teacher_ = load_model_tensors(config_.teacher, load);
    const int64_t vocab = tokenizer_->vocab_size();
    if (teacher_->config.vocab_size != vocab) {
      throw Error(
          fmt::format("the teacher's vocabulary has {} entries, the model's {}; take the "
                      "teacher's tokenizer with 'tokenizer: {{from: {}}}'.",
                      teacher_->config.vocab_size, vocab, config_.teacher.string()));
    }
  }

  std::shared_ptr<TransformerTensors> initial_weights() {
    if (!config_.initial.empty()) {
      LoadOptions load;
      load.dtype = at::kFloat;
      return load_model_tensors(config_.initial, load);
    }
    RandomWeightsOptions random;
    random.seed = config_.text.seed;
    random.norm_deviation = 0.0;
    const auto weights = random_model(describe_shape(config_.model), random);
    RandomTensors random_parts({.seed = config_.text.seed + 1});
    for (size_t i = 0; i < weights->layers.size(); ++i) {
      const LayerPlan& plan = weights->plan[i];
      if (plan.qk_norm &&
          plan.query_scale == 1.0) {  // Gemma 4's norms of queries hold the usual scale
        weights->layers[i].q_norm /= std::sqrt(static_cast<double>(plan.head_dim));
      }
      if (plan.experts.count > 0) {
        start_router(random_parts, weights->layers[i].experts);
      }
      if (is_recurrent(plan)) {
        start_recurrence(random_parts, weights->layers[i].recurrence);
      }
    }
    return weights;
  }

  /// A router's first logits vary by about 1, and its matrix's numbers too: a step of AdamW, as
  /// large for each of them, changes no route at once.
  static void start_router(RandomTensors& random, ExpertsOf<at::Tensor>& experts) {
    const int64_t hidden = experts.router.size(1);
    const double root = std::sqrt(static_cast<double>(hidden));
    experts.router = random.matrix(experts.router.size(0), hidden) * root;
    experts.router_norm /= root;
  }

  /// Starts a recurrence as De et al., 2024, Section 2.4, do: a state's decay with open gates lies
  /// between 0.9 and 0.999, evenly spread over the channels; gates and convolution are those of a
  /// linear layer.
  static void start_recurrence(RandomTensors& random, RecurrenceTensors& recurrence) {
    const auto normal = [&](at::Tensor& tensor, int64_t inputs) {
      tensor = random.matrix(tensor.numel() / inputs, inputs).view_as(tensor);
    };
    normal(recurrence.convolution, recurrence.convolution.size(0));
    normal(recurrence.input_gate, recurrence.input_gate.size(1));
    normal(recurrence.decay_gate, recurrence.decay_gate.size(1));
    const int64_t channels = recurrence.decay.numel();
    recurrence.decay = at::linspace(0.9, 0.999, channels, recurrence.decay.options()).log();
  }

  /// Makes the model's tensors leaves and hands them to the task.
  void take_parameters(TrainingTask& task) {
    model_->place = placement_on(options_.device);
    const auto take = [&](at::Tensor& tensor, std::vector<at::Tensor>& list) {
      tensor = tensor.to(options_.device).detach().set_requires_grad(true);
      list.push_back(tensor);
    };
    take(model_->embedding, task.others);
    model_->head = model_->embedding;
    take(model_->final_norm, task.others);
    for (LayerTensors& layer : model_->layers) {
      if (layer.recurrence.defined()) {
        layer.recurrence.decay = parameter_of_decay(layer.recurrence.decay);
      }
      visit_matrices(layer, [&](at::Tensor& matrix) { take(matrix, task.matrices); });
      visit_vectors(layer, [&](at::Tensor& vector) { take(vector, task.others); });
      if (layer.recurrence.defined()) {
        decay_parameters_.emplace_back(&layer.recurrence, layer.recurrence.decay);
      }
    }
  }

  /// Recurrent layers read a decay that is made of the parameter that is trained.
  void set_decays() const {
    for (const auto& [recurrence, parameter] : decay_parameters_) {
      recurrence->decay = decay_of_parameter(parameter);
    }
  }

  std::optional<at::ScalarType> matmul_dtype() const {
    return config_.bfloat16_products ? std::optional(at::kBFloat16) : std::nullopt;
  }

  at::Tensor loss(int64_t step) const {
    set_decays();
    const at::Tensor batch = data_->batch(step).to(options_.device);
    const int64_t length = config_.text.sequence_length;
    const auto inputs = batch.narrow(1, 0, length);
    const auto targets = batch.narrow(1, 1, length);
    const ReferenceResult result = reference_forward(*model_, inputs, matmul_dtype());
    const auto log_probs = at::log_softmax(result.logits, -1);
    auto total = -log_probs.gather(-1, targets.unsqueeze(-1)).mean();
    if (teacher_ != nullptr && config_.teacher_share > 0.0) {
      at::Tensor wanted;
      {
        const c10::NoGradGuard frozen;
        wanted = at::softmax(reference_forward(*teacher_, inputs, matmul_dtype()).logits, -1);
      }
      const auto cross_entropy = -(wanted * log_probs).sum(-1).mean();
      total = (1.0 - config_.teacher_share) * total + config_.teacher_share * cross_entropy;
    }
    if (config_.repetition_share > 0.0) {
      total = total + config_.repetition_share * token_unlikelihood(log_probs, inputs, targets);
    }
    if (config_.balance_share > 0.0) {
      total = total + config_.balance_share *
                          expert_balance_loss(result.router_probs, model_->plan[0].experts.chosen);
    }
    if (continuations_ != nullptr) {
      total = total + config_.continuation_share *
                          continuations_->loss(batch.narrow(1, 0, kPromptTokens), kNewTokens);
    }
    return total;
  }

  HeldOutReport report(const TransformerTensors& model, int64_t max_windows) const {
    const auto kinds = evaluate(model, teacher_.get(), *data_, max_windows);
    return {evaluation_json(kinds), evaluation_text(kinds)};
  }

  std::string identity() const {
    const json out = {{"seed", config_.text.seed},
                      {"sequence_length", config_.text.sequence_length},
                      {"steps", config_.schedule.steps},
                      {"batch_size", config_.text.batch_size},
                      {"rate", config_.schedule.learning_rate},
                      {"tokens", data_->train_tokens()},
                      {"model", config_.model}};
    return out.dump();
  }

  HeldOutReport store() const {
    set_decays();
    save_gemma(*model_, config_.model, config_.out, at::kBFloat16);
    LoadOptions load;
    load.dtype = at::kFloat;
    load.place = placement_on(options_.device);
    return report(*load_model_tensors(config_.out, load), 0);
  }

  TrainConfig config_;
  TrainOptions options_;
  NewFolder made_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TextData> data_;
  std::shared_ptr<const TransformerTensors> teacher_;
  std::shared_ptr<TransformerTensors> model_;
  std::unique_ptr<SequenceUnlikelihood> continuations_;
  std::vector<std::pair<RecurrenceTensors*, at::Tensor>> decay_parameters_;
};

}  // namespace

void train_model(const TrainConfig& config, const TrainOptions& options) {
  Trainer(config, options).run();
}

}  // namespace specdec
