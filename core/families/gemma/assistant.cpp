#include "core/families/gemma/assistant.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/gemma/gemma4_config.h"
#include "core/families/gguf/gguf_gemma4.h"
#include "core/families/gguf/gguf_tensors.h"
#include "core/formats/atomic_file.h"
#include "core/formats/json_keys.h"
#include "core/transformer/heads/head_files.h"
#include "core/transformer/layer_tensors.h"
#include "core/transformer/tensor_source.h"
#include "core/transformer/tensor_writer.h"

namespace specdec {
namespace {

using nlohmann::json;

bool is_assistant_type(const std::string& model_type) {
  return model_type == "gemma4_assistant" || model_type == "gemma4_unified_assistant";
}

void check_kind(const JsonKeys& keys) {
  const std::string type = keys.text("model_type", "");
  if (!is_assistant_type(type)) {
    keys.fail("model_type", fmt::format("is '{}'; an assistant's is gemma4_assistant or "
                                        "gemma4_unified_assistant",
                                        type));
  }
}

void read_clusters(const JsonKeys& keys, AssistantConfig& config) {
  if (!keys.boolean("use_ordered_embeddings", false)) {
    return;
  }
  config.clusters = keys.positive("num_centroids", 2048);
  config.chosen = keys.positive("centroid_intermediate_top_k", 32);
  const int64_t vocab = config.layers.config.vocab_size;
  if (vocab % config.clusters != 0) {
    keys.fail("num_centroids", fmt::format("is {}, which does not divide the vocabulary of {}",
                                           config.clusters, vocab));
  }
  if (config.chosen > config.clusters) {
    keys.fail("centroid_intermediate_top_k",
              fmt::format("is {}, of {} clusters", config.chosen, config.clusters));
  }
}

/// Points the layers at the target's whose keys and values they read. `geometry` is the key that
/// says how wide those are.
void find_sources(const JsonKeys& keys, const char* geometry, const std::vector<LayerPlan>& target,
                  AssistantConfig& config) {
  for (size_t layer = 0; layer < config.layers.plan.size(); ++layer) {
    LayerPlan& plan = config.layers.plan[layer];
    const bool sliding = plan.window > 0;
    plan.kv_source = assistant_source(target, sliding);
    if (plan.kv_source < 0) {
      keys.fail("layer_types",
                fmt::format("makes layer {} read keys and values of a {} layer, and the target has "
                            "none",
                            layer, sliding ? "sliding" : "full"));
    }
    const LayerPlan& read = target[static_cast<size_t>(plan.kv_source)];
    if (read.kv_heads != plan.kv_heads || read.head_dim != plan.head_dim) {
      keys.fail(geometry,
                fmt::format("makes layer {} read {} key/value heads of {}, but the target's layer "
                            "{} has {} of {}: the assistant was made for another model",
                            layer, plan.kv_heads, plan.head_dim, plan.kv_source, read.kv_heads,
                            read.head_dim));
    }
  }
}

/// What an assistant and its target must have in common, but for keys and values. `whole`: the keys
/// of the assistant, `text`: those of its layers.
void check_target(const JsonKeys& whole, const JsonKeys& text, const TransformerConfig& target,
                  const AssistantConfig& config) {
  const int64_t vocab = config.layers.config.vocab_size;
  if (vocab != target.vocab_size) {
    text.fail("vocab_size", fmt::format("says that the target has a vocabulary of {}, but it has "
                                        "{}: the assistant was made for another model",
                                        vocab, target.vocab_size));
  }
  if (config.target_hidden != target.hidden_size) {
    whole.fail("backbone_hidden_size",
               fmt::format("is {}, but the target has a hidden size of {}: the assistant was made "
                           "for another model",
                           config.target_hidden, target.hidden_size));
  }
}

/// `whole` says whether the head is the embedding, whatever the keys of the layers say.
void read_target(const JsonKeys& whole, AssistantConfig& config) {
  config.layers.config.tie_word_embeddings = whole.boolean("tie_word_embeddings", true);
  config.target_hidden = whole.positive("backbone_hidden_size");
  config.trained_for.hidden_size = config.target_hidden;
  config.trained_for.vocab_size = config.layers.config.vocab_size;
}

/// A target, as far as an assistant has to know it.
struct AssistantTarget {
  const TransformerConfig& config;
  const std::vector<LayerPlan>& plan;
};

/// `target`: nullptr = not known, so nothing is compared with it.
AssistantConfig read_config(const std::filesystem::path& folder, const AssistantTarget* target) {
  const std::string where = (folder / "config.json").string();
  const json parsed = parse_json_object(read_head_config(folder), where);
  const JsonKeys keys(parsed, where);
  check_kind(keys);
  const JsonKeys text = keys.object("text_config");
  AssistantConfig config;
  config.layers = read_assistant_layers(text);
  config.trained_for = read_head_target(keys);
  read_target(keys, config);
  read_clusters(keys, config);
  if (target != nullptr) {
    check_target(keys, text, target->config, config);
    check_head_shapes(config.trained_for, target->config, folder);
    find_sources(text, text.has("per_layer_config") ? "per_layer_config" : "num_key_value_heads",
                 target->plan, config);
  }
  return config;
}

/// The same from a GGUF file, whose head is dense.
AssistantConfig read_config(const GgufContent& file, const AssistantTarget* target) {
  const std::string kind = file.metadata.text("general.architecture");
  if (kind != kAssistantArchitecture) {
    file.metadata.fail("general.architecture",
                       fmt::format("is '{}'; an assistant's is {}", kind, kAssistantArchitecture));
  }
  const GgufKeys keys(file, kind);
  json parsed = json::parse(gemma4_config_json(keys));
  parsed["backbone_hidden_size"] = keys.integer("embedding_length_out");
  const JsonKeys named(parsed, file.metadata.where(), gemma4_key_names(keys));
  AssistantConfig config;
  config.layers = read_assistant_layers(named);
  read_target(named, config);
  if (target != nullptr) {
    check_target(named, named, target->config, config);
    find_sources(named, "num_key_value_heads", target->plan, config);
  }
  return config;
}

OpenAssistant open_for(const std::filesystem::path& path, const AssistantTarget* target) {
  OpenAssistant open;
  open.is_gguf = is_gguf(path);
  if (!open.is_gguf) {
    refuse_other_file(path);
    open.config = read_config(path, target);
    open.tensors = std::make_shared<CheckpointTensors>(path);
    return open;
  }
  const auto file = std::make_shared<const GgufFile>(path);
  open.config = read_config(file->content(), target);
  open.tensors = std::make_shared<GgufTensors>(file, open.config.layers.plan);
  return open;
}

void load_layers(TensorSource& source, const MatrixFormat& format, TransformerWeights& weights) {
  const int64_t hidden = weights.config.hidden_size;
  for (size_t i = 0; i < weights.plan.size(); ++i) {
    weights.layers.push_back(load_layer<Linear>(
        source, {.prefix = fmt::format("model.layers.{}.", i)}, weights.plan[i], hidden, format));
  }
  const std::vector<int64_t> table = {weights.config.vocab_size, hidden};
  const std::string embedding = "model.embed_tokens.weight";
  weights.embedding = load_matrix<Linear>(source, embedding, table, format);
  bool& is_tied = weights.config.tie_word_embeddings;
  // A head in the file counts more than what config.json says, as for every model.
  is_tied = is_tied &&
            (!source.has("lm_head.weight") || source.skip_copy("lm_head.weight", embedding, table));
  weights.head =
      is_tied ? weights.embedding : load_matrix<Linear>(source, "lm_head.weight", table, format);
  weights.final_norm = source.load("model.norm.weight", {hidden}, weights.compute_dtype());
}

void load_ordered(TensorSource& source, const AssistantConfig& config, const MatrixFormat& format,
                  CentroidHead& head) {
  const TransformerConfig& layers = config.layers.config;
  head.centroids = load_matrix<Linear>(source, "masked_embedding.centroids.weight",
                                       {config.clusters, layers.hidden_size}, format);
  const Tensor ordering =
      source.load_integers("masked_embedding.token_ordering", {layers.vocab_size});
  if (!std::get<0>(ordering.sort()).equal(at::arange(layers.vocab_size, at::kLong))) {
    throw WeightsError(
        fmt::format("{}: tensor 'masked_embedding.token_ordering' should hold every "
                    "token once",
                    source.folder().string()));
  }
  head.ordering = ordering.view({config.clusters, -1});
  head.chosen = config.chosen;
}

/// The inverse of what the config's reader makes of rope_parameters.
json rope_json(const LayerPlan& plan) {
  json rope = {{"rope_theta", plan.rope.theta}, {"rope_type", "default"}};
  if (plan.rope.rotated_pairs > 0) {
    rope["rope_type"] = "proportional";
    rope["partial_rotary_factor"] =
        2.0 * static_cast<double>(plan.rope.rotated_pairs) / static_cast<double>(plan.head_dim);
  } else if (plan.rope.factor != 1.0) {
    rope["rope_type"] = "linear";
  }
  if (plan.rope.factor != 1.0) {
    rope["factor"] = plan.rope.factor;
  }
  return rope;
}

json text_config(const TransformerWeights& weights) {
  const TransformerConfig& config = weights.config;
  json text = {{"model_type", "gemma4_text"},
               {"vocab_size", config.vocab_size},
               {"hidden_size", config.hidden_size},
               {"num_hidden_layers", config.num_layers},
               {"num_kv_shared_layers", config.num_layers},
               {"hidden_size_per_layer_input", 0},
               {"rms_norm_eps", config.rms_norm_eps},
               {"max_position_embeddings", config.max_position_embeddings},
               {"intermediate_size", weights.plan.front().intermediate_size},
               {"num_attention_heads", weights.plan.front().heads},
               {"num_key_value_heads", weights.plan.front().kv_heads},
               {"head_dim", weights.plan.front().head_dim},
               {"tie_word_embeddings", config.tie_word_embeddings}};
  for (size_t i = 0; i < weights.plan.size(); ++i) {
    const LayerPlan& plan = weights.plan[i];
    const char* type = plan.window > 0 ? "sliding_attention" : "full_attention";
    text["layer_types"].push_back(type);
    text["rope_parameters"][type] = rope_json(plan);
    text["per_layer_config"][std::to_string(i)] = {{"head_dim", plan.head_dim},
                                                   {"num_key_value_heads", plan.kv_heads}};
    if (plan.window > 0) {
      text["sliding_window"] = plan.window;
    }
  }
  return text;
}

void write_layers(TensorWriter& writer, const TransformerTensors& model) {
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerTensors& layer = model.layers[i];
    const std::string prefix = fmt::format("model.layers.{}.", i);
    const auto gate_up = layer.gate_up.chunk(2, 0);
    const std::pair<const char*, Tensor> tensors[] = {
        {"self_attn.q_proj.weight", layer.qkv},
        {"self_attn.o_proj.weight", layer.output},
        {"self_attn.q_norm.weight", layer.q_norm},
        {"mlp.gate_proj.weight", gate_up[0]},
        {"mlp.up_proj.weight", gate_up[1]},
        {"mlp.down_proj.weight", layer.down},
        {"input_layernorm.weight", layer.attention_norm},
        {"post_attention_layernorm.weight", layer.attention_post_norm},
        {"pre_feedforward_layernorm.weight", layer.mlp_norm},
        {"post_feedforward_layernorm.weight", layer.mlp_post_norm},
        {"layer_scalar", at::full({1}, layer.scalar, layer.q_norm.options())}};
    for (const auto& [name, tensor] : tensors) {
      writer.add(prefix + name, tensor);
    }
  }
  writer.add("model.embed_tokens.weight", model.embedding);
  writer.add("model.norm.weight", model.final_norm);
  if (!model.config.tie_word_embeddings) {
    writer.add("lm_head.weight", model.head);
  }
}

}  // namespace

bool is_assistant(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    const std::filesystem::path file = path / "config.json";
    if (!std::filesystem::exists(file)) {
      return false;
    }
    const json parsed = parse_json_object(read_head_config(path), file.string());
    const std::string type = JsonKeys(parsed, file.string()).text("model_type", "");
    return is_assistant_type(type);
  }
  return is_gguf(path) &&
         GgufFile(path).content().metadata.text("general.architecture") == kAssistantArchitecture;
}

OpenAssistant open_assistant(const std::filesystem::path& path) { return open_for(path, nullptr); }

LoadedAssistant load_assistant(const std::filesystem::path& path, const TransformerInfo& target,
                               std::optional<at::ScalarType> dtype) {
  const AssistantTarget known{target.config, target.plan};
  const OpenAssistant open = open_for(path, &known);
  const AssistantConfig& config = open.config;
  TensorSource source(open.tensors, target.place);
  const int64_t hidden = config.layers.config.hidden_size;
  const std::vector<int64_t> entry = {hidden, 2 * config.target_hidden};
  const at::ScalarType plain =
      plain_dtype(dtype, source.stored_dtype("pre_projection.weight", entry), target);
  const bool keeps_formats =
      open.is_gguf && plain != at::kDouble && (!dtype || *dtype == at::kChar);
  const MatrixFormat format(plain, keeps_formats);
  auto head = std::make_shared<AssistantHead>();
  head->weights.config = config.layers.config;
  head->weights.plan = config.layers.plan;
  head->weights.weight_dtype = format.dtype;
  head->weights.place = target.place;
  head->target_hidden = config.target_hidden;
  head->pre_projection = load_matrix<Linear>(source, "pre_projection.weight", entry, format);
  head->post_projection =
      load_matrix<Linear>(source, "post_projection.weight", {config.target_hidden, hidden}, format);
  load_layers(source, format, head->weights);
  if (config.clusters > 0) {
    load_ordered(source, config, format, head->ordered);
  }
  source.check_all_taken();
  head->weights.fingerprint = fmt::format("{:016x}", source.hash());
  return {.head = std::move(head), .note = check_head_target(config.trained_for, target, path)};
}

void save_assistant(const AssistantHead& head, const TransformerInfo& target,
                    const std::filesystem::path& folder, at::ScalarType dtype) {
  std::filesystem::create_directories(folder);
  const bool ordered = head.ordered.centroids.defined();
  TensorWriter writer(dtype);
  write_layers(writer, unpack(head.weights));
  writer.add("pre_projection.weight", head.pre_projection.unpack());
  writer.add("post_projection.weight", head.post_projection.unpack());
  json config = {{"architectures", {"Gemma4AssistantForCausalLM"}},
                 {"model_type", "gemma4_assistant"},
                 {"backbone_hidden_size", head.target_hidden},
                 {"use_ordered_embeddings", ordered},
                 {"tie_word_embeddings", head.weights.config.tie_word_embeddings},
                 {"trained_for", head_target_json(head_target(target))},
                 {"text_config", text_config(head.weights)}};
  if (ordered) {
    writer.add("masked_embedding.centroids.weight", head.ordered.centroids.unpack());
    writer.add("masked_embedding.token_ordering", head.ordered.ordering.flatten());
    config["num_centroids"] = head.ordered.ordering.size(0);
    config["centroid_intermediate_top_k"] = head.ordered.chosen;
  }
  writer.write(folder / "model.safetensors");
  write_file(folder / "config.json", config.dump(2) + "\n");
}

}  // namespace specdec
