#include "experiments/train/model_shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/families/gemma/config.h"
#include "core/families/gemma/gemma4_config.h"
#include "core/families/recurrent_gemma/config.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "experiments/config/config_node.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kGemma4Text = "gemma4_text";
constexpr const char* kRecurrentGemma = "recurrent_gemma";
const Range<int64_t> kAnySize{1, 1 << 24};

/// What the config.json of either family says.
json read_sizes(const ConfigNode& node) {
  const auto heads = node.require<int64_t>("heads", {1, 1024});
  const auto kv_heads = node.get<int64_t>("kv_heads", 1, {1, 1024});
  const auto head_dim = node.get<int64_t>("head_dim", 64, {2, 1024});
  if (heads % kv_heads != 0) {
    node.fail("kv_heads", "should divide heads");
  }
  if (head_dim % 2 != 0) {
    node.fail("head_dim", "should be even: rotary embeddings turn pairs");
  }
  return {{"attention_bias", false},
          {"bos_token_id", 2},
          {"eos_token_id", {1}},
          {"head_dim", head_dim},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"hidden_size", node.require<int64_t>("hidden_size", kAnySize)},
          {"intermediate_size", node.require<int64_t>("intermediate_size", kAnySize)},
          {"max_position_embeddings", node.get<int64_t>("max_position_embeddings", 1024, kAnySize)},
          {"num_attention_heads", heads},
          {"num_hidden_layers", node.require<int64_t>("layers", {1, 1024})},
          {"num_key_value_heads", kv_heads},
          {"pad_token_id", 0},
          {"rms_norm_eps", 1e-6},
          {"sliding_window", node.get<int64_t>("sliding_window", 64, kAnySize)},
          {"tie_word_embeddings", true},
          {"vocab_size", 2}};
}

struct Thetas {
  double full;
  double sliding;
};

Thetas read_thetas(const ConfigNode& node) {
  return {node.get<double>("rope_theta", 1e4, {1.0, 1e12}),
          node.get<double>("rope_local_base_freq", 1e4, {1.0, 1e12})};
}

/// Every `sliding_window_pattern`th of the layers is a full one.
json read_layer_kinds(const ConfigNode& node, const json& sizes) {
  const auto pattern = node.get<int64_t>("sliding_window_pattern", 6, {1, 1024});
  json kinds = json::array();
  for (int64_t layer = 1; layer <= sizes["num_hidden_layers"].get<int64_t>(); ++layer) {
    kinds.push_back(layer % pattern != 0 ? "sliding_attention" : "full_attention");
  }
  return kinds;
}

json gemma3_json(const ConfigNode& node) {
  json config = read_sizes(node);
  const auto [full, sliding] = read_thetas(node);
  config.update({{"architectures", {"Gemma3ForCausalLM"}},
                 {"attn_logit_softcapping", nullptr},
                 {"final_logit_softcapping", nullptr},
                 {"layer_types", read_layer_kinds(node, config)},
                 {"model_type", "gemma3_text"},
                 {"query_pre_attn_scalar", config["head_dim"]},
                 {"rope_local_base_freq", sliding},  // transformers 4 reads these two
                 {"rope_theta", full},
                 {"rope_parameters",
                  {{"full_attention", {{"rope_theta", full}, {"rope_type", "default"}}},
                   {"sliding_attention", {{"rope_theta", sliding}, {"rope_type", "default"}}}}},
                 {"use_bidirectional_attention", false}});
  return config;
}

/// Keys of Gemma 4's mixtures of experts; a missing `experts` means that there are none.
json read_experts(const ConfigNode& node) {
  node.ignore("experts");  // known, also where it is not given
  if (!node.has("experts")) {
    return {{"enable_moe_block", false}};
  }
  const ConfigNode experts = node.child("experts");
  const auto count = experts.require<int64_t>("count", {1, 1024});
  const auto chosen = experts.require<int64_t>("chosen", {1, 1024});
  if (count > 0 && chosen > count) {  // else a mistake, which is noted
    experts.fail("chosen", fmt::format("is {}, of {} experts", chosen, count));
  }
  return {{"enable_moe_block", true},
          {"moe_intermediate_size", experts.require<int64_t>("intermediate_size", kAnySize)},
          {"num_experts", count},
          {"top_k_experts", chosen}};
}

/// The config.json of a Gemma 4, whose shape is Gemma 3's but for its full layers and its experts.
json gemma4_json(const ConfigNode& node) {
  json config = read_sizes(node);
  const auto [full, sliding] = read_thetas(node);
  const auto full_dim =
      node.get<int64_t>("global_head_dim", 2 * config["head_dim"].get<int64_t>(), {8, 1024});
  const auto raw_values = node.get<bool>("attention_k_eq_v", true);
  const auto soft_cap = node.get<double>("final_logit_softcapping", 0.0, {0.0, 1e6});
  if (full_dim % 8 != 0) {
    node.fail("global_head_dim", "should be a multiple of 8: a quarter of its pairs is rotated");
  }
  json kinds = read_layer_kinds(node, config);
  if (!kinds.empty()) {  // else an error is recorded
    kinds.back() = "full_attention";
  }
  config.update(
      {{"architectures", {"Gemma4ForCausalLM"}},
       {"attention_k_eq_v", raw_values},
       {"final_logit_softcapping", soft_cap > 0.0 ? json(soft_cap) : json()},
       {"global_head_dim", full_dim},
       {"hidden_size_per_layer_input", 0},
       {"layer_types", kinds},
       {"model_type", kGemma4Text},
       {"num_global_key_value_heads", raw_values ? config["num_key_value_heads"] : json()},
       {"num_kv_shared_layers", 0},
       {"rope_parameters",
        {{"full_attention",
          {{"partial_rotary_factor", 0.25}, {"rope_theta", full}, {"rope_type", "proportional"}}},
         {"sliding_attention", {{"rope_theta", sliding}, {"rope_type", "default"}}}}}});
  config.update(read_experts(node));
  return config;
}

/// Layers of a recurrence between those of local attention, as `block_types` repeats them.
json recurrent_json(const ConfigNode& node) {
  json config = read_sizes(node);
  const auto hidden = config["hidden_size"].get<int64_t>();
  const auto heads = config["num_attention_heads"].get<int64_t>();
  const auto head_dim = config["head_dim"].get<int64_t>();
  const auto width = node.get<int64_t>("lru_width", hidden, kAnySize);
  const bool has_heads = heads > 0;  // else an error is recorded
  if (has_heads && (hidden != heads * head_dim || head_dim % 4 != 0)) {
    node.fail("head_dim", fmt::format("is {}, of {} heads; RecurrentGemma's is hidden_size {} / "
                                      "heads, a multiple of 4: half of a head is rotated, in pairs",
                                      head_dim, heads, hidden));
  }
  if (has_heads && width % heads != 0) {
    node.fail("lru_width", fmt::format("is {}, no multiple of the {} heads, whose blocks its gates "
                                       "have",
                                       width, heads));
  }
  const auto types =
      node.get_list<std::string>("block_types", {"recurrent", "recurrent", "attention"});
  const auto is_known = [](const std::string& type) {
    return type == "recurrent" || type == "attention";
  };
  if (types.empty() || !std::all_of(types.begin(), types.end(), is_known)) {
    node.fail("block_types", fmt::format("is [{}]; should be a list of 'recurrent' and 'attention'",
                                         fmt::join(types, ", ")));
  }
  const auto used = std::min(std::ssize(types), config["num_hidden_layers"].get<int64_t>());
  if (used > 0 &&
      std::find(types.begin(), types.begin() + used, "recurrent") == types.begin() + used) {
    node.fail("block_types",
              fmt::format("makes none of the model's layers recurrent: [{}]; name one, or train a "
                          "model of family gemma3",
                          fmt::join(types, ", ")));
  }
  const auto window = config["sliding_window"].get<int64_t>();
  const auto mlp = config["intermediate_size"].get<int64_t>();
  config.erase("sliding_window");
  config.update(
      {{"architectures", {"RecurrentGemmaForCausalLM"}},
       {"attention_window_size", window},
       {"block_types", types},
       {"conv1d_width", node.get<int64_t>("convolution_width", 4, {1, 64})},
       {"eos_token_id", 1},
       {"intermediate_size", 2 * mlp},  // in its config.json, of gate and up together
       {"logits_soft_cap", node.get<double>("final_logit_softcapping", 30.0, {1e-3, 1e6})},
       {"lru_width", width},
       {"model_type", kRecurrentGemma},
       {"partial_rotary_factor", 0.5},
       {"rope_theta", node.get<double>("rope_theta", 1e4, {1.0, 1e12})}});
  return config;
}

using ReadFamily = json (*)(const ConfigNode& node);
constexpr NamedValue<ReadFamily> kShapeFamilies[] = {
    {"gemma3", gemma3_json}, {"gemma4", gemma4_json}, {"recurrent_gemma", recurrent_json}};

/// Whether save_gemma can store a layer.
bool can_be_stored(const LayerPlan& layer) {
  return layer.kv_source < 0 && layer.per_layer_size == 0 && layer.altup.streams == 0;
}

std::string stored_recurrent_shape(const std::string& text, const std::string& where) {
  if (!parse_recurrent_gemma_config(text, where).config.tie_word_embeddings) {
    throw WeightsError(fmt::format(
        "{}: tie_word_embeddings is false; only models whose head is the embedding can be trained",
        where));
  }
  return text;
}

}  // namespace

std::string read_model_shape(const ConfigNode& node) {
  const ReadFamily read = node.choose("family", kShapeFamilies, gemma3_json);
  return read(node).dump(2) + "\n";
}

std::string checkpoint_shape(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  const std::string text = read_file(path);
  const std::string type =
      JsonKeys(parse_json_object(text, path.string()), path.string()).text("model_type", "");
  if (type == kRecurrentGemma) {
    return stored_recurrent_shape(text, path.string());
  }
  const auto& newer = gemma4_model_types();
  if (std::find(newer.begin(), newer.end(), type) == newer.end()) {
    return load_gemma_config(folder).text;
  }
  const ModelDescription model = parse_gemma4_config(text, path.string());
  if (type != kGemma4Text || !std::all_of(model.plan.begin(), model.plan.end(), can_be_stored)) {
    throw WeightsError(
        fmt::format("{}: of Gemma 4 only text models (model_type {}) can be trained that have "
                    "neither shared keys and values nor per-layer inputs",
                    path.string(), kGemma4Text));
  }
  return text;
}

bool has_experts(const std::string& shape) {
  return json::parse(shape).value("enable_moe_block", false);
}

std::string shape_with_vocabulary(const std::string& shape, int64_t vocab_size) {
  json parsed = json::parse(shape);
  parsed["vocab_size"] = vocab_size;
  return parsed.dump(2) + "\n";
}

ModelDescription describe_shape(const std::string& shape) {
  const std::string where = "the model's shape";
  const std::string type = json::parse(shape).at("model_type");
  return type == kGemma4Text       ? parse_gemma4_config(shape, where)
         : type == kRecurrentGemma ? parse_recurrent_gemma_config(shape, where)
                                   : parse_gemma_config(shape, where);
}

}  // namespace specdec
