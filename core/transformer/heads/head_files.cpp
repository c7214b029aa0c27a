#include "core/transformer/heads/head_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "core/formats/torch_dtype.h"

namespace specdec {

HeadTarget head_target(const TransformerInfo& target) {
  return {target.fingerprint, target.weights_fingerprint, target.config.vocab_size,
          target.config.hidden_size, target.config.num_layers};
}

TransformerInfo unloaded_target(const TransformerConfig& config, std::vector<LayerPlan> plan) {
  TransformerInfo target;
  target.config = config;
  target.plan = std::move(plan);
  target.place = placement_on(at::kMeta);
  return target;
}

HeadTarget read_head_target(const JsonKeys& keys) {
  HeadTarget target;
  if (keys.has("trained_for")) {
    const JsonKeys trained_for = keys.object("trained_for");
    target.fingerprint = trained_for.text("fingerprint", "");
    target.weights = trained_for.text("weights", "");
    target.vocab_size = trained_for.positive("vocab_size");
    target.hidden_size = trained_for.positive("hidden_size");
    target.num_layers = trained_for.positive("num_layers");
  }
  return target;
}

nlohmann::json head_target_json(const HeadTarget& target) {
  nlohmann::json json = {{"fingerprint", target.fingerprint},
                         {"vocab_size", target.vocab_size},
                         {"hidden_size", target.hidden_size},
                         {"num_layers", target.num_layers}};
  if (!target.weights.empty()) {
    json["weights"] = target.weights;
  }
  return json;
}

void check_head_shapes(const HeadTarget& expected, const TransformerConfig& target,
                       const std::filesystem::path& folder) {
  const auto check = [&](int64_t trained, int64_t actual, const char* what) {
    if (trained != 0 && trained != actual) {
      throw WeightsError(fmt::format(
          "{}: this head was trained for a target with {} {}, and this target has {}. Use the head "
          "that was trained for this target.",
          folder.string(), what, trained, actual));
    }
  };
  check(expected.vocab_size, target.vocab_size, "a vocabulary of");
  check(expected.hidden_size, target.hidden_size, "a hidden size of");
  check(expected.num_layers, target.num_layers, "a number of layers of");
}

std::string check_head_target(const HeadTarget& expected, const TransformerInfo& target,
                              const std::filesystem::path& folder) {
  check_head_shapes(expected, target.config, folder);
  const bool same = expected.fingerprint == target.fingerprint ||
                    (!expected.weights.empty() && expected.weights == target.weights_fingerprint);
  if (expected.fingerprint.empty() || same) {
    return "";
  }
  return fmt::format(
      "{}: this head was trained for a target of the same shape with other weights ({}; here {}): "
      "another stored type, an adapter, or other training. Its output stays correct, but fewer "
      "drafts may be accepted.",
      folder.string(), expected.fingerprint, target.fingerprint);
}

std::string read_head_config(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw WeightsError(fmt::format(
        "{}: no such folder. Name a head's folder, which holds config.json and its weights.",
        folder.string()));
  }
  const std::filesystem::path file = folder / "config.json";
  std::string text = read_file(file);
  const auto parsed = parse_json_object(text, file.string());
  (void)torch_dtype(JsonKeys(parsed, file.string()));
  return text;
}

void read_head_layer_sizes(const JsonKeys& keys, int64_t hidden_size, LayerPlan& plan) {
  plan.heads = keys.positive("num_attention_heads");
  plan.kv_heads = keys.positive("num_key_value_heads", plan.heads);
  if (plan.heads % plan.kv_heads != 0) {
    keys.fail("num_key_value_heads",
              fmt::format("is {}, which does not divide the {} heads", plan.kv_heads, plan.heads));
  }
  plan.head_dim = keys.positive("head_dim", std::max<int64_t>(1, hidden_size / plan.heads));
  if (plan.head_dim % 2 != 0) {
    keys.fail("head_dim",
              fmt::format("is {}; rotary embeddings need an even number", plan.head_dim));
  }
  plan.intermediate_size = keys.positive("intermediate_size");
}

at::ScalarType plain_dtype(std::optional<at::ScalarType> wanted, at::ScalarType stored,
                           const TransformerInfo& target) {
  if (target.compute_dtype() == at::kDouble) {
    return at::kDouble;
  }
  return wanted && *wanted != at::kChar ? *wanted : stored;
}

namespace {

/// The block drafters by what speculators or `projector_type` calls them, or architectures contain;
/// a name that contains another stands before it.
struct BlockDrafter {
  const char* kind;
  const char* architecture;
  bool supported = true;
};
constexpr BlockDrafter kBlockDrafters[] = {{"dflash2", "DFlash2"}, {"domino", "Domino"},
                                           {"dspark", "DSpark"},   {"xpress", "XPress", false},
                                           {"peagle", "PEagle"},   {"dflash", "DFlash"}};

/// `projector_type` of a config, nested or at the top.
std::string projector_type(const JsonKeys& keys) {
  const std::string nested =
      keys.has("dflash_config") ? keys.object("dflash_config").text("projector_type", "") : "";
  return nested.empty() ? keys.text("projector_type", "") : nested;
}

/// The kind of a head that drafts blocks; "" for other heads. Throws WeightsError for one that is
/// not supported.
std::string block_drafter_kind(const JsonKeys& keys) {
  const std::string projector = projector_type(keys);
  // speculators' files may name z-lab's classes.
  const std::string speculators = keys.text("speculators_model_type", "");
  const std::string kind = speculators.empty() ? projector : speculators;
  const std::string names = keys.has("architectures") ? keys.at("architectures").dump() : "";
  for (const BlockDrafter& known : kBlockDrafters) {
    const bool named = kind.empty() && names.find(known.architecture) != std::string::npos;
    if (kind != known.kind && !named) {
      continue;
    }
    if (!known.supported) {
      keys.fail("architectures",
                fmt::format("says that this is a {} draft head, which is not supported; supported "
                            "heads: dflash, dflash2, domino, dspark, eagle, eagle3, medusa, "
                            "peagle, gemma4_assistant",
                            known.kind));
    }
    return known.kind;
  }
  if (!projector.empty()) {
    keys.fail("projector_type",
              fmt::format("is '{}'; supported: dflash, dflash2, domino, dspark", projector));
  }
  if (kind.empty() && keys.has("block_size") && keys.has("target_layer_ids")) {
    keys.fail("architectures",
              "names no head that drafts blocks, as block_size and target_layer_ids are of one: "
              "such a head's class has DFlash, DFlash2, Domino, DSpark or PEagle in its name. Take "
              "config.json as it was published");
  }
  return "";
}

}  // namespace

std::string head_kind(const JsonKeys& keys) {
  if (const std::string kind = block_drafter_kind(keys); !kind.empty()) {
    return kind;
  }
  for (const char* key : {"head_type", "speculators_model_type"}) {
    if (const std::string kind = keys.text(key, ""); !kind.empty()) {
      return kind;
    }
  }
  if (keys.has("medusa_num_heads")) {
    return "medusa";
  }
  const std::string names = keys.has("architectures") ? keys.at("architectures").dump() : "";
  if (names.find("Eagle3") != std::string::npos) {
    return "eagle3";
  }
  return names.find("Eagle") != std::string::npos ? "eagle" : "";
}

std::string head_kind(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  if (!has_entry(file)) {
    return "";
  }
  const nlohmann::json object = parse_json_object(read_file(file), file.string());
  return head_kind(JsonKeys(object, file.string()));
}

void refuse_head(const std::filesystem::path& folder) {
  if (const std::string kind = head_kind(folder); !kind.empty()) {
    throw WeightsError(fmt::format(
        "{0}: holds a head of type {1}, which drafts for the model that it was trained for and is "
        "no model itself. Use it as drafter: {{type: {1}, weights: {0}}}.",
        folder.string(), kind));
  }
}

CheckpointTensors head_tensors(const std::filesystem::path& folder, const char* file) {
  return has_entry(folder / file) ? CheckpointTensors(folder, file) : CheckpointTensors(folder);
}

}  // namespace specdec
