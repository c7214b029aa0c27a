#include "experiments/train/train_config.h"

#include <cmath>

#include "core/error.h"
#include "experiments/config_file.h"
#include "experiments/config_node.h"

namespace specdec {
namespace {

const Range<int64_t> kPositive{1, 1 << 24};

GemmaConfig read_model(const ConfigNode& node) {
  GemmaConfig config;
  config.family = GemmaFamily::kGemma3;
  config.hidden_size = node.require<int64_t>("hidden_size", kPositive);
  config.intermediate_size = node.require<int64_t>("intermediate_size", kPositive);
  config.num_layers = node.require<int64_t>("layers", {1, 1024});
  config.num_heads = node.require<int64_t>("heads", {1, 1024});
  config.num_kv_heads = node.get<int64_t>("kv_heads", 1, {1, 1024});
  config.head_dim = node.get<int64_t>("head_dim", 64, {2, 1024});
  config.sliding_window = node.get<int64_t>("sliding_window", 64, kPositive);
  const auto pattern = node.get<int64_t>("sliding_window_pattern", 6, {1, 1024});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    config.sliding_layers.push_back((layer + 1) % pattern != 0);
  }
  config.max_position_embeddings = node.get<int64_t>("max_position_embeddings", 1024, kPositive);
  config.global_rope.theta = node.get<double>("rope_theta", 1e4, {1.0, 1e12});
  config.local_rope.theta = node.get<double>("rope_local_base_freq", 1e4, {1.0, 1e12});
  config.query_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  config.end_ids = {1};
  if (config.num_heads % config.num_kv_heads != 0) {
    node.fail("kv_heads", "should divide heads");
  }
  if (config.head_dim % 2 != 0) {
    node.fail("head_dim", "should be even: rotary embeddings turn pairs");
  }
  return config;
}

std::vector<TextSource> read_data(const ConfigNode& node) {
  std::vector<TextSource> data;
  for (const ConfigNode& source : node.children("data")) {
    TextSource text;
    text.file = source.require_path("file");
    text.kind = source.require<std::string>("kind");
    const auto format = source.get<std::string>("format", "text");
    text.records = format == "lines";
    if (format != "text" && format != "lines") {
      source.fail("format", "should be 'text' (one long text) or 'lines' (one text a line)");
    }
    data.push_back(std::move(text));
  }
  return data;
}

void read_schedule(const ConfigNode& node, TrainConfig& config) {
  config.sequence_length = node.get<int64_t>("sequence_length", config.sequence_length, {2, 8192});
  config.batch_size = node.get<int64_t>("batch_size", config.batch_size, {1, 4096});
  config.steps = node.get<int64_t>("steps", config.steps, {1, 100000000});
  config.warm_up_steps = node.get<int64_t>("warm_up_steps", config.warm_up_steps, {0, 100000000});
  config.learning_rate = node.get<double>("learning_rate", config.learning_rate, {1e-9, 1.0});
  config.weight_decay = node.get<double>("weight_decay", config.weight_decay, {0.0, 10.0});
  config.clip_norm = node.get<double>("clip_norm", config.clip_norm, {1e-6, 1e6});
  config.evaluate_every = node.get<int64_t>("evaluate_every", config.evaluate_every, kPositive);
  config.checkpoint_every =
      node.get<int64_t>("checkpoint_every", config.checkpoint_every, kPositive);
  config.bfloat16_products = node.get<bool>("bfloat16_products", config.bfloat16_products);
  config.continuation_share =
      node.get<double>("continuation_share", config.continuation_share, {0.0, 100.0});
  config.repetition_share =
      node.get<double>("repetition_share", config.repetition_share, {0.0, 1.0});
}

}  // namespace

TrainConfig load_train_config(const std::filesystem::path& file,
                              const std::vector<std::string>& overrides) {
  const auto errors = std::make_shared<ConfigErrors>();
  const auto tree = load_config(file, overrides, *errors);
  const ConfigNode node(tree, errors, file.parent_path());
  TrainConfig config;
  config.name = node.get<std::string>("name", file.stem().string());
  config.seed = node.get<uint64_t>("seed", 0);
  config.out = node.require<std::string>("out");
  if (node.has("initial")) {
    config.initial = node.require_path("initial");
    config.model = load_gemma_config(config.initial);
  } else {
    config.model = read_model(node.child("model"));
  }
  const ConfigNode tokenizer = node.child("tokenizer");
  if (tokenizer.has("from")) {
    config.tokenizer_from = tokenizer.require_path("from");
  } else {
    config.tokenizer_vocab_size =
        tokenizer.get<int64_t>("vocab_size", config.tokenizer_vocab_size, {300, 1 << 20});
  }
  config.data = read_data(node);
  config.held_out = node.get<double>("held_out", config.held_out, {0.001, 0.5});
  read_schedule(node, config);
  if (node.has("teacher")) {
    const ConfigNode teacher = node.child("teacher");
    config.teacher = teacher.require_path("weights");
    config.teacher_share = teacher.get<double>("share", 0.5, {0.0, 1.0});
  }
  node.refuse_unknown_keys();
  errors->throw_if_any();
  return config;
}

}  // namespace specdec
