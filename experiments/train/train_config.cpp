#include "experiments/train/train_config.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/families/model.h"
#include "core/tokenizers/tokenizer.h"
#include "experiments/config/config_file.h"
#include "experiments/config/config_node.h"
#include "experiments/train/model_shape.h"

namespace specdec {
namespace {

const Range<int64_t> kPositive{1, 1 << 24};

/// Whether each line of a file is a text, or all of it is one.
constexpr NamedValue<bool> kTextFormats[] = {{"text", false}, {"lines", true}};

std::vector<TextSource> read_sources(const ConfigNode& node) {
  std::vector<TextSource> sources;
  for (const ConfigNode& source : node.children("data")) {
    TextSource text;
    text.file = source.require_path("file");
    text.kind = source.require<std::string>("kind");
    text.records = source.choose("format", kTextFormats, false);
    sources.push_back(std::move(text));
  }
  if (sources.empty() && node.is_list("data")) {
    node.fail("data", "names no text to train on");
  }
  return sources;
}

/// Notes a mistake where the model that a training goes on from has not as many tokens as the
/// tokenizer.
void check_vocabulary(const ConfigNode& tokenizer, const TrainConfig& config, int64_t tokens) {
  if (config.initial.empty() || config.model.empty()) {
    return;  // no such model, or a mistake, which is noted
  }
  const int64_t known = describe_shape(config.model).config.vocab_size;
  if (known != tokens) {
    tokenizer.fail(config.tokenizer_from.empty() ? "vocab_size" : "from",
                   fmt::format("gives {} tokens, and the model of 'initial', {}, has {}: take the "
                               "tokenizer that it was trained with",
                               tokens, config.initial.string(), known));
  }
}

/// The model's shape, or the checkpoint that says it: one of the two.
void read_start(const ConfigNode& node, TrainConfig& config) {
  node.ignore("initial");  // known, also where it is not given
  if (!node.has("initial")) {
    config.model = read_model_shape(node.child("model"));
    return;
  }
  node.ignore("model");
  if (node.has("model")) {
    node.fail(
        "model",
        "is the shape of a training that starts anew, and 'initial' names a checkpoint, which "
        "has its own: leave out one of the two, as with --set model=null");
  }
  config.initial = node.require_path("initial");
  if (!config.initial.empty()) {
    note_error(node, "initial", [&] { config.model = checkpoint_shape(config.initial); });
  }
}

}  // namespace

TextPlan read_text_plan(const ConfigNode& node) {
  TextPlan text;
  text.seed = node.get<uint64_t>("seed", text.seed);
  text.sources = read_sources(node);
  text.held_out = node.get<double>("held_out", text.held_out, {0.001, 0.5});
  text.sequence_length = node.get<int64_t>("sequence_length", text.sequence_length, {2, 8192});
  text.batch_size = node.get<int64_t>("batch_size", text.batch_size, {1, 4096});
  return text;
}

TrainSchedule read_schedule(const ConfigNode& node, const TrainSchedule& defaults) {
  TrainSchedule out = defaults;
  out.steps = node.get<int64_t>("steps", out.steps, {1, 100000000});
  out.warm_up_steps = node.get<int64_t>("warm_up_steps", out.warm_up_steps, {0, 100000000});
  out.learning_rate = node.get<double>("learning_rate", out.learning_rate, {1e-9, 1.0});
  out.weight_decay = node.get<double>("weight_decay", out.weight_decay, {0.0, 10.0});
  out.clip_norm = node.get<double>("clip_norm", out.clip_norm, {1e-6, 1e6});
  out.evaluate_every = node.get<int64_t>("evaluate_every", out.evaluate_every, kPositive);
  out.checkpoint_every = node.get<int64_t>("checkpoint_every", out.checkpoint_every, kPositive);
  return out;
}

std::string endless_warm_up(const TrainSchedule& schedule) {
  return schedule.warm_up_steps < schedule.steps
             ? ""
             : fmt::format(
                   "warm_up_steps: is {}, but the training has {} steps: the learning rate "
                   "never reaches its peak. Lower warm_up_steps",
                   schedule.warm_up_steps, schedule.steps);
}

void check_sequence_length(const ConfigNode& node, const TextPlan& text, const std::string& whose,
                           const TransformerConfig& model) {
  if (text.sequence_length > model.max_position_embeddings) {
    node.fail(
        "sequence_length",
        fmt::format("is {}, more than {} max_position_embeddings ({}): lower the one or raise "
                    "the other",
                    text.sequence_length, whose, model.max_position_embeddings));
  }
}

bool describes_training(const std::filesystem::path& file,
                        const std::vector<std::string>& overrides) {
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode node(load_config(file, overrides, *errors), errors);
  const bool trains = node.has("data") || node.has("head") ||
                      (node.has("steps") && node.has("learning_rate") && !node.has("prompts"));
  return !node.has("strategies") && trains;
}

TrainConfig load_train_config(const std::filesystem::path& file,
                              const std::vector<std::string>& overrides) {
  const auto errors = std::make_shared<ConfigErrors>();
  const auto tree = load_config(file, overrides, *errors);
  const ConfigNode node(tree, errors, file.parent_path());
  TrainConfig config;
  config.name = node.get<std::string>("name", file.stem().string());
  config.out = node.require<std::string>("out");
  read_start(node, config);
  const ConfigNode tokenizer = node.child("tokenizer");
  if (tokenizer.has("from")) {
    config.tokenizer_from = tokenizer.require_path("from");
    if (!config.tokenizer_from.empty()) {
      note_error(tokenizer, "from", [&] {
        check_vocabulary(tokenizer, config, load_tokenizer(config.tokenizer_from)->vocab_size());
      });
    }
  } else {
    config.tokenizer_vocab_size =
        tokenizer.get<int64_t>("vocab_size", config.tokenizer_vocab_size, {300, 1 << 20});
    check_vocabulary(tokenizer, config, config.tokenizer_vocab_size);
  }
  config.text = read_text_plan(node);
  config.schedule = read_schedule(node);
  config.bfloat16_products = node.get<bool>("bfloat16_products", config.bfloat16_products);
  config.continuation_share =
      node.get<double>("continuation_share", config.continuation_share, {0.0, 100.0});
  config.balance_share = node.get<double>("balance_share", config.balance_share, {0.0, 100.0});
  if (config.balance_share > 0.0 && !config.model.empty() && !has_experts(config.model)) {
    node.fail("balance_share", "is for mixtures of experts, and the model has no model.experts");
  }
  config.repetition_share =
      node.get<double>("repetition_share", config.repetition_share, {0.0, 1.0});
  if (node.has("teacher")) {
    const ConfigNode teacher = node.child("teacher");
    config.teacher = teacher.require_model("weights");
    if (!config.teacher.empty()) {
      note_error(teacher, "weights", [&] {
        check_sequence_length(node, config.text, "the teacher's",
                              describe_model(config.teacher).config);
      });
    }
    config.teacher_share = teacher.get<double>("share", 0.5, {0.0, 1.0});
  }
  if (errors->empty()) {  // else the shape may be none
    check_sequence_length(node, config.text, "the model's", describe_shape(config.model).config);
  }
  node.refuse_unknown_keys();
  errors->throw_if_any();
  return config;
}

}  // namespace specdec
