#include "core/families/gguf/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/formats/tensor_slice.h"

namespace specdec {
namespace {

struct TensorName {
  const char* gguf;
  const char* hub;
};

/// Outside the layers.
constexpr TensorName kNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
    // Gemma 4's assistant.
    {"nextn.pre_projection.weight", "pre_projection.weight"},
    {"nextn.post_projection.weight", "post_projection.weight"}};
/// Parts of a layer.
constexpr TensorName kParts[] = {{"attn_norm", "input_layernorm"},
                                 {"attn_q", "self_attn.q_proj"},
                                 {"attn_k", "self_attn.k_proj"},
                                 {"attn_v", "self_attn.v_proj"},
                                 {"attn_output", "self_attn.o_proj"},
                                 {"attn_q_norm", "self_attn.q_norm"},
                                 {"attn_k_norm", "self_attn.k_norm"},
                                 {"ffn_gate", "mlp.gate_proj"},
                                 {"ffn_up", "mlp.up_proj"},
                                 {"ffn_down", "mlp.down_proj"},
                                 // Gemma 3n and 4: inputs of each layer's own.
                                 {"inp_gate", "per_layer_input_gate"},
                                 {"proj", "per_layer_projection"},
                                 {"post_norm", "post_per_layer_input_norm"},
                                 // Gemma 3n.
                                 {"altup_correct_coef", "altup.correction_coefs"},
                                 {"altup_predict_coef", "altup.prediction_coefs"},
                                 {"altup_router", "altup.modality_router"},
                                 {"altup_router_norm", "altup.router_norm"},
                                 {"laurel_l", "laurel.linear_left"},
                                 {"laurel_r", "laurel.linear_right"},
                                 {"laurel_post_norm", "laurel.post_laurel_norm"},
                                 // Gemma 4 with experts.
                                 {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                                 {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                                 {"post_ffw_norm_2", "post_feedforward_layernorm_2"}};
/// Parts whose kind the two sides name otherwise.
constexpr TensorName kWholeParts[] = {{"layer_output_scale.weight", "layer_scalar"},
                                      {"altup_correct_scale.weight", "altup.correct_output_scale"},
                                      {"ffn_gate_inp.weight", "router.proj.weight"},
                                      {"ffn_gate_inp.scale", "router.scale"},
                                      {"ffn_down_exps.scale", "router.per_expert_scale"},
                                      {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
                                      {"ffn_gate_exps.weight", "experts.gate_proj"},
                                      {"ffn_up_exps.weight", "experts.up_proj"},
                                      {"ffn_down_exps.weight", "experts.down_proj"}};
/// Norm names of Gemma 1 and Llama, where the hub calls the norm BEFORE the MLP so.
constexpr TensorName kNorms[] = {{"ffn_norm", "post_attention_layernorm"}};
/// Norm names of models with post norms.
constexpr TensorName kPostNorms[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                     {"post_attention_norm", "post_attention_layernorm"},
                                     {"post_ffw_norm", "post_feedforward_layernorm"}};

/// The line of `table` that has `name` as its `side`; null without one.
const TensorName* find_name(std::span<const TensorName> table, const std::string& name,
                            const char* TensorName::*side) {
  for (const TensorName& known : table) {
    if (name == known.*side) {
      return &known;
    }
  }
  return nullptr;
}

const TensorName* find_part(const std::string& part, const char* TensorName::*side,
                            bool post_norms) {
  const TensorName* known = find_name(kParts, part, side);
  const std::span<const TensorName> norms =
      post_norms ? std::span<const TensorName>(kPostNorms) : std::span<const TensorName>(kNorms);
  return known != nullptr ? known : find_name(norms, part, side);
}

/// How one side names tensors; `layers`: what the names of all layers begin with.
struct Notation {
  const char* TensorName::*name;
  std::string_view layers;
};
constexpr Notation kGguf = {&TensorName::gguf, "blk."};
constexpr Notation kHub = {&TensorName::hub, "model.layers."};

/// "blk.3.attn_q.weight" -> 3, "attn_q.weight", "attn_q", "weight"; kind is empty in one without.
struct LayerName {
  std::string layer, rest, part, kind;
};

bool parse_layer_name(const std::string& name, std::string_view layers, LayerName& out) {
  const size_t rest = name.find('.', layers.size()) + 1;
  if (name.rfind(layers, 0) != 0 || rest == 0) {
    return false;
  }
  out = {name.substr(layers.size(), rest - 1 - layers.size()), name.substr(rest), "", ""};
  const size_t kind = out.rest.rfind('.');
  out.part = out.rest.substr(0, kind);
  out.kind = kind == std::string::npos ? "" : out.rest.substr(kind + 1);
  return true;
}

/// The tensor's name in the other notation; an unknown one as it is.
std::string translated(const std::string& name, const Notation& from, const Notation& to,
                       bool post_norms) {
  if (const TensorName* known = find_name(kNames, name, from.name)) {
    return known->*to.name;
  }
  LayerName parts;
  if (!parse_layer_name(name, from.layers, parts)) {
    return name;
  }
  if (const TensorName* whole = find_name(kWholeParts, parts.rest, from.name)) {
    return fmt::format("{}{}.{}", to.layers, parts.layer, whole->*to.name);
  }
  const TensorName* part = find_part(parts.part, from.name, post_norms);
  return part == nullptr || parts.kind.empty()
             ? name
             : fmt::format("{}{}.{}.{}", to.layers, parts.layer, part->*to.name, parts.kind);
}

/// llama.cpp rotates neighbouring pairs in architecture `llama` and stores the rows of q and k so.
bool is_interleaved(const GgufFile& file, const std::string& name) {
  LayerName parts;
  return file.metadata().text("general.architecture") == "llama" &&
         parse_layer_name(name, kGguf.layers, parts) &&
         (parts.part == "attn_q" || parts.part == "attn_k");
}

/// What the plan says already: the frequencies of rotations, a part of it (describe_gguf) or, in
/// each layer of old files, those that the base gives. And the clusters in old files of assistants,
/// of which no key says how many are chosen: llama.cpp's head is dense there too.
bool is_left_out(const std::string& name) {
  LayerName parts;
  return name == "rope_freqs.weight" || name.rfind("masked_embd_", 0) == 0 ||
         (parse_layer_name(name, kGguf.layers, parts) && parts.part == "attn_rot_embd");
}

/// The tensors of a stack [n, out, in] are those of the hub of these names, with the place between.
struct StackName {
  const char* gguf;
  const char* before;
  const char* after;
};
constexpr StackName kStacks[] = {
    {"altup_proj.weight", "model.altup_projections.", ".weight"},
    {"altup_unembd_proj.weight", "model.altup_unembed_projections.", ".weight"}};

/// Parts of the hub's names before and after the place of a matrix in a stack: one of kStacks, or
/// of the experts of a layer, "model.layers.N.experts.E.down_proj". Nothing for other tensors.
std::optional<std::pair<std::string, std::string>> stack_name(const std::string& stored,
                                                              const std::string& hub) {
  for (const StackName& known : kStacks) {
    if (stored == known.gguf) {
      return std::pair{known.before, known.after};
    }
  }
  constexpr std::string_view kExperts = ".experts.";
  const size_t experts = hub.find(kExperts);
  if (experts == std::string::npos || hub.rfind(kHub.layers, 0) != 0) {
    return std::nullopt;
  }
  const size_t end = experts + kExperts.size();
  return std::pair{hub.substr(0, end), "." + hub.substr(end)};
}

}  // namespace

std::string gguf_name(const std::string& name, bool post_norms) {
  return translated(name, kHub, kGguf, post_norms);
}

GgufTensors::GgufTensors(std::shared_ptr<const GgufFile> file, const std::vector<LayerPlan>& plan)
    : file_(std::move(file)), post_norms_(!plan.empty() && plan.front().post_norms) {
  const int64_t head_dim = plan.empty() ? 0 : plan.front().head_dim;
  for (const TensorEntry& stored : file_->tensors()) {
    if (is_left_out(stored.name)) {
      continue;
    }
    TensorEntry entry = stored;
    entry.name = translated(stored.name, kGguf, kHub, post_norms_);
    if (is_interleaved(*file_, stored.name) && !entry.shape.empty() && head_dim > 0 &&
        entry.shape[0] % head_dim == 0) {
      entry.interleaved_rows = head_dim;
    }
    if (!add_stack(entry, stored.name) && !add_fused(entry, stored.name, plan)) {
      add(std::move(entry), stored.name);
    }
  }
}

void GgufTensors::add(TensorEntry entry, const std::string& stored) {
  const auto [known, is_new] = stored_names_.emplace(entry.name, stored);
  if (!is_new) {
    throw WeightsError(fmt::format(
        "{}: tensors '{}' and '{}' are the same part of the model ({}); one of them is wrong. "
        "Convert the model to GGUF anew.",
        folder().string(), known->second, stored, entry.name));
  }
  by_name_.emplace(entry.name, entries_.size());
  entries_.push_back(std::move(entry));
}

bool GgufTensors::add_stack(const TensorEntry& stack, const std::string& stored) {
  const auto name = stack_name(stored, stack.name);
  if (!name || stack.shape.size() != 3 || stack.bytes.empty()) {
    return false;
  }
  stacks_.emplace(stack.name, stack);
  const std::vector<int64_t> shape = {stack.shape[1], stack.shape[2]};
  for (int64_t i = 0; i < stack.shape[0]; ++i) {
    add(slice_rows(stack, i * shape[0], shape, fmt::format("{}{}{}", name->first, i, name->second)),
        stored);
  }
  return true;
}

bool GgufTensors::add_fused(const TensorEntry& fused, const std::string& stored,
                            const std::vector<LayerPlan>& plan) {
  LayerName parts;
  if (!parse_layer_name(stored, kGguf.layers, parts) || parts.rest != "attn_qkv.weight") {
    return false;
  }
  for (size_t layer = 0; layer < plan.size() && fused.shape.size() == 2; ++layer) {
    const int64_t q_rows = plan[layer].heads * plan[layer].head_dim;
    const int64_t kv_rows = (fused.shape[0] - q_rows) / 2;
    if (parts.layer != std::to_string(layer) || kv_rows < 0 ||
        q_rows + 2 * kv_rows != fused.shape[0]) {
      continue;
    }
    int64_t first = 0;
    for (const auto& [part, rows] :
         {std::pair{"q", q_rows}, std::pair{"k", kv_rows}, std::pair{"v", kv_rows}}) {
      add(slice_rows(fused, first, {rows, fused.shape[1]},
                     fmt::format("{}{}.self_attn.{}_proj.weight", kHub.layers, layer, part)),
          stored);
      first += rows;
    }
    return true;
  }
  return false;
}

const TensorEntry* GgufTensors::find(std::string_view name) const {
  if (const auto found = by_name_.find(name); found != by_name_.end()) {
    return &entries_[found->second];
  }
  const auto stack = stacks_.find(name);
  return stack == stacks_.end() ? nullptr : &stack->second;
}

std::vector<const TensorEntry*> GgufTensors::tensors() const {
  std::vector<const TensorEntry*> all;
  for (const TensorEntry& entry : entries_) {
    all.push_back(&entry);
  }
  return all;
}

void GgufTensors::release(const TensorEntry& entry, size_t begin, size_t size) const {
  begin = std::min(begin, entry.bytes.size());
  file_->release(entry.bytes.subspan(begin, std::min(size, entry.bytes.size() - begin)));
}

std::string GgufTensors::stored_name(const std::string& name) const {
  const auto found = stored_names_.find(name);
  return found != stored_names_.end() ? found->second : gguf_name(name, post_norms_);
}

}  // namespace specdec
