#include "experiments/train/trainer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adamw.h>
#include <torch/serialize.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/gemma/random_weights.h"
#include "core/gemma/reference.h"
#include "core/gemma/save.h"
#include "core/gemma/weights.h"
#include "core/tokenizer.h"
#include "experiments/config_file.h"
#include "experiments/train/evaluation.h"
#include "experiments/train/text_data.h"
#include "experiments/train/tokenizer_training.h"
#include "experiments/train/unlikelihood.h"

namespace specdec {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kTokenizerFiles[] = {"tokenizer.model", "tokenizer.json",
                                           "tokenizer_config.json"};
constexpr int64_t kQuickWindows = 24;
// Of the greedy continuations that sequence unlikelihood looks at.
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
  for (const TextSource& source : config.data) {
    training.texts.push_back(split_text(source, config.held_out).train);
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
      : config_(config), options_(options) {
    refuse_finished();
    fs::create_directories(config.out);
    make_tokenizer(config_);
    tokenizer_ = load_tokenizer(config.out);
    config_.model.vocab_size = tokenizer_->vocab_size();
    data_ = std::make_unique<TextData>(config_, *tokenizer_);
    load_teacher();
    make_model();
  }

  void run() {
    int64_t step = resume();
    say(fmt::format("{}: {} parameters, {} training tokens, steps {} to {}", config_.name,
                    parameters_, data_->train_tokens(), step, config_.steps));
    started_ = std::chrono::steady_clock::now();
    first_step_ = step;
    while (step < config_.steps) {
      const double loss = train_step(step);
      ++step;
      if (!std::isfinite(loss)) {
        throw Error(fmt::format("the loss is {} at step {}: lower learning_rate.", loss, step));
      }
      running_loss_ = running_loss_ == 0.0 ? loss : 0.98 * running_loss_ + 0.02 * loss;
      if (step % config_.evaluate_every == 0 || step == config_.steps) {
        note(step);
      }
      if (step % config_.checkpoint_every == 0 && step < config_.steps) {
        save_state(step);
      }
    }
    finish();
  }

 private:
  void say(const std::string& line) const {
    if (options_.log) {
      options_.log(line);
    }
  }

  /// A finished model is never overwritten: it may be what experiments were run on.
  void refuse_finished() const {
    if (fs::exists(config_.out / "model.safetensors")) {
      throw Error(
          fmt::format("{} holds a model already; remove it first, or train into another "
                      "folder with --set out=FOLDER.",
                      config_.out.string()));
    }
  }

  void load_teacher() {
    if (config_.teacher.empty()) {
      return;
    }
    GemmaLoadOptions load;
    load.dtype = at::kFloat;
    load.device = options_.device;
    teacher_ = load_gemma(config_.teacher, load);
    if (teacher_->config.vocab_size != config_.model.vocab_size) {
      throw Error(fmt::format(
          "the teacher's vocabulary has {} entries, the model's {}; take the "
          "teacher's tokenizer with 'tokenizer: {{from: {}}}'.",
          teacher_->config.vocab_size, config_.model.vocab_size, config_.teacher.string()));
    }
  }

  std::shared_ptr<GemmaWeights> initial_weights() {
    if (!config_.initial.empty()) {
      GemmaLoadOptions load;
      load.dtype = at::kFloat;
      return std::make_shared<GemmaWeights>(*load_gemma(config_.initial, load));
    }
    RandomGemmaOptions random;
    random.seed = config_.seed;
    random.norm_deviation = 0.0;
    return random_gemma(config_.model, random);
  }

  void make_model() {
    model_ = initial_weights();
    std::vector<at::Tensor> matrices;
    std::vector<at::Tensor> others;
    const auto take = [&](at::Tensor& tensor, std::vector<at::Tensor>& list) {
      if (tensor.defined()) {
        tensor = tensor.to(options_.device).detach().set_requires_grad(true);
        list.push_back(tensor);
        parameters_ += tensor.numel();
      }
    };
    take(model_->embedding, others);
    model_->head = model_->embedding;
    take(model_->final_norm, others);
    for (GemmaLayerWeights& layer : model_->layers) {
      for (at::Tensor* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
        take(*matrix, matrices);
      }
      for (at::Tensor* norm : {&layer.attention_norm, &layer.attention_post_norm, &layer.mlp_norm,
                               &layer.mlp_post_norm, &layer.q_norm, &layer.k_norm}) {
        take(*norm, others);
      }
    }
    if (config_.continuation_share > 0.0) {
      continuations_ = std::make_unique<SequenceUnlikelihood>(model_);
    }
    all_ = matrices;
    all_.insert(all_.end(), others.begin(), others.end());
    const auto adam = [&](double decay) {
      return std::make_unique<torch::optim::AdamWOptions>(
          torch::optim::AdamWOptions(config_.learning_rate).betas({0.9, 0.95}).weight_decay(decay));
    };
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(matrices, adam(config_.weight_decay));
    groups.emplace_back(others, adam(0.0));
    optimizer_ = std::make_unique<torch::optim::AdamW>(groups);
  }

  double learning_rate(int64_t step) const {
    if (step < config_.warm_up_steps) {
      return config_.learning_rate * static_cast<double>(step + 1) /
             static_cast<double>(config_.warm_up_steps);
    }
    const double span =
        static_cast<double>(std::max<int64_t>(1, config_.steps - config_.warm_up_steps));
    const double done = static_cast<double>(step - config_.warm_up_steps) / span;
    return config_.learning_rate * (0.1 + 0.45 * (1.0 + std::cos(M_PI * done)));
  }

  std::optional<at::ScalarType> matmul_dtype() const {
    return config_.bfloat16_products ? std::optional(at::kBFloat16) : std::nullopt;
  }

  at::Tensor loss(const at::Tensor& batch) const {
    const int64_t length = config_.sequence_length;
    const auto inputs = batch.narrow(1, 0, length);
    const auto targets = batch.narrow(1, 1, length);
    const auto log_probs =
        at::log_softmax(reference_forward(*model_, inputs, matmul_dtype()).logits, -1);
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
    if (continuations_ != nullptr) {
      total = total + config_.continuation_share *
                          continuations_->loss(batch.narrow(1, 0, kPromptTokens), kNewTokens);
    }
    return total;
  }

  double train_step(int64_t step) {
    for (auto& group : optimizer_->param_groups()) {
      group.options().set_lr(learning_rate(step));
    }
    optimizer_->zero_grad();
    const at::Tensor value = loss(data_->batch(step).to(options_.device));
    value.backward();
    clip_gradients();
    optimizer_->step();
    return value.item<double>();
  }

  void clip_gradients() {
    at::Tensor squares = at::zeros({}, at::TensorOptions(at::kFloat).device(options_.device));
    for (const at::Tensor& parameter : all_) {
      squares += parameter.grad().pow(2).sum();
    }
    const double norm = std::sqrt(squares.item<double>());
    if (norm > config_.clip_norm) {
      for (const at::Tensor& parameter : all_) {
        parameter.grad().mul_(config_.clip_norm / norm);
      }
    }
  }

  void note(int64_t step) {
    const auto kinds = evaluate(*model_, teacher_.get(), *data_, kQuickWindows);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started_;
    const double left = elapsed.count() / static_cast<double>(step - first_step_) *
                        static_cast<double>(config_.steps - step);
    say(fmt::format("step {:>6}/{}  loss {:.3f}{}  {:.0f} s left", step, config_.steps,
                    running_loss_, evaluation_text(kinds), left));
    const json line = {
        {"step", step}, {"loss", running_loss_}, {"held_out", evaluation_json(kinds)}};
    std::ofstream stream(config_.out / "training.jsonl", std::ios::app);
    stream << line.dump() << std::endl;
    if (!stream) {
      throw Error(fmt::format("{}: cannot be written; is the disk full?",
                              (config_.out / "training.jsonl").string()));
    }
  }

  fs::path state_path() const { return config_.out / "training.state"; }

  /// What must not change between a training and its continuation.
  std::string identity() const {
    json out = {{"seed", config_.seed},
                {"sequence_length", config_.sequence_length},
                {"steps", config_.steps},
                {"batch_size", config_.batch_size},
                {"rate", config_.learning_rate},
                {"tokens", data_->train_tokens()},
                {"model", gemma_config_json(config_.model)}};
    return out.dump();
  }

  void save_state(int64_t step) {
    torch::serialize::OutputArchive archive;
    archive.write("step", at::scalar_tensor(step, at::kLong));
    archive.write("identity", c10::IValue(identity()));
    archive.write("loss", at::scalar_tensor(running_loss_, at::kDouble));
    for (size_t i = 0; i < all_.size(); ++i) {
      archive.write(fmt::format("parameter{}", i), all_[i].detach());
    }
    torch::serialize::OutputArchive optimizer;
    optimizer_->save(optimizer);
    archive.write("optimizer", optimizer);
    const fs::path temporary = state_path().string() + ".new";
    archive.save_to(temporary.string());
    fs::rename(temporary, state_path());
  }

  int64_t resume() {
    if (!fs::exists(state_path())) {
      fs::remove(config_.out / "training.jsonl");
      return 0;
    }
    torch::serialize::InputArchive archive;
    try {
      archive.load_from(state_path().string());
    } catch (const c10::Error&) {
      throw Error(
          fmt::format("{}: damaged; remove it to train from the start.", state_path().string()));
    }
    c10::IValue saved;
    archive.read("identity", saved);
    if (saved.toStringRef() != identity()) {
      throw Error(
          fmt::format("{} was left by a training with another config; remove it, or set "
                      "another 'out'.",
                      state_path().string()));
    }
    at::Tensor step;
    at::Tensor loss;
    archive.read("step", step);
    archive.read("loss", loss);
    running_loss_ = loss.item<double>();
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < all_.size(); ++i) {
      at::Tensor value;
      archive.read(fmt::format("parameter{}", i), value);
      all_[i].copy_(value);
    }
    torch::serialize::InputArchive optimizer;
    archive.read("optimizer", optimizer);
    optimizer_->load(optimizer);
    return step.item<int64_t>();
  }

  void finish() {
    save_gemma(*model_, config_.out, at::kBFloat16);
    GemmaLoadOptions load;
    load.dtype = at::kFloat;
    load.device = options_.device;
    const auto stored = load_gemma(config_.out, load);
    const auto kinds = evaluate(*stored, teacher_.get(), *data_, 0);
    say("stored weights on all held-out text:" + evaluation_text(kinds));
    json summary = {{"name", config_.name},
                    {"parameters", parameters_},
                    {"train_tokens", data_->train_tokens()},
                    {"steps", config_.steps},
                    {"tokens_per_step", config_.batch_size * config_.sequence_length},
                    {"held_out", evaluation_json(kinds)}};
    write_text_file(config_.out / "training.json", summary.dump(2) + "\n");
    fs::remove(state_path());
  }

  TrainConfig config_;
  TrainOptions options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TextData> data_;
  std::shared_ptr<const GemmaWeights> teacher_;
  std::shared_ptr<GemmaWeights> model_;
  std::vector<at::Tensor> all_;
  std::unique_ptr<SequenceUnlikelihood> continuations_;
  int64_t parameters_ = 0;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
  std::chrono::steady_clock::time_point started_;
  int64_t first_step_ = 0;
  double running_loss_ = 0.0;
};

}  // namespace

void train_model(const TrainConfig& config, const TrainOptions& options) {
  Trainer(config, options).run();
}

}  // namespace specdec
