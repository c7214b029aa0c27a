#include "experiments/train/head_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/model.h"
#include "experiments/config/config_file.h"
#include "experiments/config/config_node.h"

namespace specdec {
namespace {

const Range<int64_t> kSequences{1, 1 << 24};

constexpr NamedValue<HeadType> kHeadTypes[] = {{"medusa", HeadType::kMedusa},
                                               {"eagle", HeadType::kEagle},
                                               {"eagle3", HeadType::kEagle3},
                                               {"mtp", HeadType::kMtp},
                                               {"gemma4_assistant", HeadType::kAssistant},
                                               {"self", HeadType::kSelf}};
constexpr NamedValue<at::ScalarType> kStoredTypes[] = {{"bfloat16", at::kBFloat16},
                                                       {"int8", at::kChar}};

/// The type of a head; none when there is no such type, which has been noted.
std::optional<HeadType> read_type(const ConfigNode& node) {
  const std::vector<std::string> names = names_of(kHeadTypes);
  const auto type = node.require_type(names);
  const auto found = std::find(names.begin(), names.end(), type);
  return found == names.end() ? std::nullopt
                              : std::optional(kHeadTypes[found - names.begin()].value);
}

at::ScalarType read_stored(const ConfigNode& node, HeadType type) {
  if (type == HeadType::kMtp || type == HeadType::kAssistant || type == HeadType::kSelf) {
    return at::kBFloat16;
  }
  return node.choose("stored", kStoredTypes, at::kBFloat16);
}

void read_assistant(const ConfigNode& node, HeadShape& shape) {
  const Range<int64_t> sizes{2, 1 << 24};
  shape.hidden_size = node.require<int64_t>("hidden_size", sizes);
  shape.intermediate_size = node.require<int64_t>("intermediate_size", sizes);
  shape.num_layers = node.get<int64_t>("num_layers", 4, {1, 64});
  shape.heads = node.get<int64_t>("heads", shape.heads, {1, 1024});
  shape.clusters = node.get<int64_t>("clusters", 0, {0, 1 << 24});
  if (shape.clusters > 0) {
    shape.chosen_clusters = node.require<int64_t>("chosen_clusters", {1, shape.clusters});
  }
}

/// The linear modules of a plain layer.
constexpr const char* kModules[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                    "gate_proj", "up_proj", "down_proj"};

void read_lora(const ConfigNode& node, LoraShape& shape) {
  const std::vector<std::string> known(std::begin(kModules), std::end(kModules));
  shape.layers = node.require<int64_t>("layers", {1, 1023});
  shape.rank = node.get<int64_t>("rank", shape.rank, {1, 4096});
  shape.alpha = node.get<double>("alpha", shape.alpha, {1e-6, 1e6});
  shape.modules = node.get_list<std::string>("target_modules", known);
  if (shape.modules.empty()) {
    node.fail("target_modules", "names none");
  }
  for (const std::string& name : shape.modules) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      node.fail("target_modules", fmt::format("names '{}'{}", name, known_names_text(name, known)));
    }
  }
}

HeadShape read_shape(const ConfigNode& node) {
  HeadShape shape;
  const auto type = read_type(node);
  if (!type) {
    return shape;
  }
  shape.type = *type;
  shape.stored = read_stored(node, *type);
  switch (shape.type) {
    case HeadType::kMedusa:
      shape.num_heads = node.get<int64_t>("num_heads", shape.num_heads, {1, 64});
      shape.num_layers = node.get<int64_t>("num_layers", shape.num_layers, {1, 16});
      shape.share_lm_head = node.get<bool>("share_lm_head", shape.share_lm_head);
      shape.draft_vocab_size = node.get<int64_t>("draft_vocab_size", 0, {0, 1 << 24});
      if (shape.draft_vocab_size > 0 && !shape.share_lm_head) {
        node.fail("draft_vocab_size", "is for heads that share the target's: set share_lm_head");
      }
      break;
    case HeadType::kEagle:
      shape.llama_layer = node.get<bool>("llama_layer", shape.llama_layer);
      shape.after_final_norm = node.get<bool>("after_final_norm", shape.after_final_norm);
      shape.draft_vocab_size = node.get<int64_t>("draft_vocab_size", 0, {0, 1 << 24});
      shape.intermediate_size = node.get<int64_t>("intermediate_size", 0, {0, 1 << 24});
      break;
    case HeadType::kEagle3:
      shape.llama_layer = node.get<bool>("llama_layer", shape.llama_layer);
      shape.layers = node.get_list<int64_t>("layers", {}, {0, 1023});
      shape.draft_vocab_size = node.get<int64_t>("draft_vocab_size", 0, {0, 1 << 24});
      shape.intermediate_size = node.get<int64_t>("intermediate_size", 0, {0, 1 << 24});
      break;
    case HeadType::kMtp:
      shape.num_layers = node.get<int64_t>("num_layers", shape.num_layers, {1, 16});
      break;
    case HeadType::kAssistant:
      read_assistant(node, shape);
      break;
    case HeadType::kSelf:
      read_lora(node, shape.lora);
      break;
  }
  return shape;
}

/// The loss that was published for a type of head: see docs/train_heads.md.
HeadLoss usual_loss(const HeadShape& shape) {
  switch (shape.type) {
    case HeadType::kMedusa:
      return {.tokens = 1.0, .decay = 0.8, .depth = shape.num_heads};
    case HeadType::kEagle:
      return {.distribution = 0.1, .features = 1.0, .depth = 1};
    case HeadType::kEagle3:
      return {.distribution = 1.0, .decay = 0.8, .depth = 7};
    case HeadType::kAssistant:
    case HeadType::kSelf:
      return {.distribution = 1.0, .decay = 0.8, .depth = 4};
    case HeadType::kMtp:
      break;
  }
  return {.tokens = 1.0, .decay = 0.6, .depth = 3};
}

HeadLoss read_loss(const ConfigNode& node, const HeadShape& shape) {
  HeadLoss loss = usual_loss(shape);
  node.refuse_old_name("law", "distribution");
  loss.distribution = node.get<double>("distribution", loss.distribution, {0.0, 1e6});
  loss.tokens = node.get<double>("tokens", loss.tokens, {0.0, 1e6});
  loss.features = node.get<double>("features", loss.features, {0.0, 1e6});
  loss.decay = node.get<double>("decay", loss.decay, {0.0, 1.0});
  loss.depth = node.get<int64_t>("depth", loss.depth, {1, 64});
  if (loss.distribution == 0.0 && loss.tokens == 0.0 && loss.features == 0.0) {
    node.fail("distribution, tokens and features are all 0: there is nothing to learn");
  }
  if (loss.features > 0.0 && shape.type != HeadType::kEagle) {
    node.fail("features", "only EAGLE's head guesses features; set 0");
  }
  if (shape.type == HeadType::kMedusa && loss.depth > shape.num_heads) {
    node.fail("depth", "is more than head.num_heads");
  }
  return loss;
}

SelfDistillation read_self_distillation(const ConfigNode& node, int64_t sequence_length) {
  SelfDistillation out;
  out.share = node.get<double>("share", 0.5, {0.0, 1.0});
  out.sequences = node.get<int64_t>("sequences", out.sequences, kSequences);
  out.prompt_tokens = node.get<int64_t>("prompt_tokens", out.prompt_tokens, {1, 8192});
  out.temperatures = node.get_list<double>("temperatures", out.temperatures, {0.0, 100.0});
  out.held_out_sequences =
      node.get<int64_t>("held_out_sequences", out.held_out_sequences, kSequences);
  out.file = node.get<std::string>("file", "");
  if (out.prompt_tokens > sequence_length) {
    node.fail("prompt_tokens", fmt::format("is {}: nothing is left to write in sequences of {}",
                                           out.prompt_tokens, sequence_length));
  }
  if (out.temperatures.empty()) {
    node.fail("temperatures", "names none");
  }
  std::error_code code;
  if (std::filesystem::exists(out.file, code) &&
      !std::filesystem::is_regular_file(out.file, code)) {
    node.fail("file", fmt::format("names {}, which is no file", out.file.string()));
  }
  return out;
}

void check_assistant_target(const ConfigNode& node, const HeadShape& shape,
                            const TransformerConfig& target) {
  if (target.family.rfind("gemma4", 0) != 0) {
    node.fail("type", fmt::format("gemma4_assistant is for targets of Gemma 4, and this one is a "
                                  "'{}'; train eagle3, eagle, medusa or mtp for it",
                                  target.family));
  }
  if (shape.clusters > 0 && target.vocab_size % shape.clusters != 0) {
    node.fail("clusters", fmt::format("is {}, which does not divide the target's vocabulary of {}",
                                      shape.clusters, target.vocab_size));
  }
}

void check_exit(const ConfigNode& node, int64_t layers, const ModelDescription& target) {
  if (layers >= target.config.num_layers) {
    node.fail("layers", fmt::format("is {}, and the target has {}: give 1 to {}", layers,
                                    target.config.num_layers, target.config.num_layers - 1));
  } else if (!std::all_of(target.plan.begin(), target.plan.end(), is_plain)) {
    node.fail("type", fmt::format("self is for targets of plain layers (their own keys and values, "
                                  "one dense MLP), and this one is a '{}'",
                                  target.config.family));
  }
}

/// What of the shape, or of the text, does not fit the target.
void check_target(const ConfigNode& root, const HeadTrainConfig& config) {
  if (config.target.empty()) {
    return;
  }
  const ConfigNode node = root.child("head");
  try {
    const ModelDescription description = describe_model(config.target);
    const TransformerConfig& target = description.config;
    if (config.answers.folder.empty()) {
      check_sequence_length(root, config.text, "the target's", target);
    }
    if (config.shape.type == HeadType::kSelf) {
      check_exit(node, config.shape.lora.layers, description);
    }
    if (config.shape.type == HeadType::kAssistant) {
      check_assistant_target(node, config.shape, target);
    }
    for (const int64_t layer : config.shape.layers) {
      if (layer >= target.num_layers) {
        node.fail("layers", fmt::format("names layer {}, but the target has layers 0 to {}", layer,
                                        target.num_layers - 1));
      }
    }
    if (config.shape.draft_vocab_size > target.vocab_size) {
      node.fail("draft_vocab_size", fmt::format("is {}, more than the target's vocabulary of {}",
                                                config.shape.draft_vocab_size, target.vocab_size));
    }
  } catch (const WeightsError& error) {
    node.fail(error.what());
  }
}

/// What is trained on: the answers of a chat model, or text.
void read_material(const ConfigNode& node, HeadTrainConfig& config) {
  if (!node.has("answers")) {
    config.text = read_text_plan(node);
    if (node.has("self_distillation")) {
      config.self_distillation =
          read_self_distillation(node.child("self_distillation"), config.text.sequence_length);
    }
    return;
  }
  const ConfigNode answers = node.child("answers");
  if (config.shape.type == HeadType::kAssistant) {
    node.fail("answers",
              "are recorded without the keys and values that an assistant reads; give "
              "data instead, with self_distillation");
  }
  config.answers.folder = answers.require<std::string>("folder");
  config.answers.prompts = answers.get<int64_t>("prompts", 0, {0, 1 << 24});
  config.answers.exclude_run = answers.get<int64_t>("exclude_run", 32, {1, 1 << 20});
  for (const std::string& file : answers.get_list<std::string>("exclude", {})) {
    config.answers.exclude.emplace_back(file);
    if (!std::filesystem::is_regular_file(file)) {
      answers.fail("exclude", fmt::format("names {}, which is no file: it is the generations.jsonl "
                                          "of a run whose answers must not be trained on",
                                          file));
    }
  }
  config.text.seed = node.get<uint64_t>("seed", config.text.seed);
  config.text.held_out = node.get<double>("held_out", config.text.held_out, {0.001, 0.5});
  config.text.batch_size = node.get<int64_t>("batch_size", config.text.batch_size, {1, 4096});
}

}  // namespace

std::string head_type_name(HeadType type) { return name_of<HeadType>(kHeadTypes, type); }

std::string head_identity(const HeadShape& shape, const HeadLoss& loss) {
  nlohmann::json out = {{"type", head_type_name(shape.type)},
                        {"num_heads", shape.num_heads},
                        {"num_layers", shape.num_layers},
                        {"share_lm_head", shape.share_lm_head},
                        {"intermediate_size", shape.intermediate_size},
                        {"layers", shape.layers},
                        {"draft_vocab_size", shape.draft_vocab_size},
                        {"llama_layer", shape.llama_layer},
                        {"after_final_norm", shape.after_final_norm},
                        {"distribution", loss.distribution},
                        {"tokens", loss.tokens},
                        {"features", loss.features},
                        {"decay", loss.decay},
                        {"depth", loss.depth}};
  if (shape.type == HeadType::kAssistant) {
    out.update({{"hidden_size", shape.hidden_size},
                {"heads", shape.heads},
                {"clusters", shape.clusters},
                {"chosen_clusters", shape.chosen_clusters}});
  }
  if (shape.type == HeadType::kSelf) {
    out.update({{"rank", shape.lora.rank},
                {"alpha", shape.lora.alpha},
                {"exit", shape.lora.layers},
                {"modules", shape.lora.modules}});
  }
  return out.dump();
}

bool describes_head(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  const auto errors = std::make_shared<ConfigErrors>();
  return ConfigNode(load_config(file, overrides, *errors), errors).has("head");
}

HeadTrainConfig load_head_train_config(const std::filesystem::path& file,
                                       const std::vector<std::string>& overrides) {
  const auto errors = std::make_shared<ConfigErrors>();
  const auto tree = load_config(file, overrides, *errors);
  const ConfigNode node(tree, errors, file.parent_path());
  HeadTrainConfig config;
  config.name = node.get<std::string>("name", file.stem().string());
  config.out = node.require<std::string>("out");
  config.target = node.child("target").require_model("weights");
  config.shape = read_shape(node.child("head"));
  config.loss = read_loss(node.child("loss", /*required=*/false), config.shape);
  read_material(node, config);
  check_target(node, config);
  TrainSchedule usual;
  usual.weight_decay = 0.01;
  config.schedule = read_schedule(node, usual);
  config.evaluate_depth = node.get<int64_t>("evaluate_depth", config.evaluate_depth, {1, 16});
  config.bfloat16_products = node.get<bool>("bfloat16_products", config.bfloat16_products);
  if (config.loss.depth >= config.text.sequence_length) {
    node.fail("sequence_length", "should be more than loss.depth");
  }
  node.refuse_unknown_keys();
  errors->throw_if_any();
  return config;
}

}  // namespace specdec
