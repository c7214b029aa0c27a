#include "core/families/gguf/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "core/error.h"

namespace specdec {
namespace {

struct TensorName {
  const char* gguf;
  const char* hub;
};

/// Outside the layers.
constexpr TensorName kNames[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                 {"output_norm.weight", "model.norm.weight"},
                                 {"output.weight", "lm_head.weight"}};
/// Parts of a layer.
constexpr TensorName kParts[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"}};
/// In Gemma 1 and Llama the hub calls the norm BEFORE the MLP so.
constexpr TensorName kNorms[] = {{"ffn_norm", "post_attention_layernorm"}};
/// In models with post norms.
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

/// "blk.3.attn_q.weight" -> 3, "attn_q", "weight"
struct LayerName {
  std::string layer, part, kind;
};

bool parse_layer_name(const std::string& name, std::string_view layers, LayerName& out) {
  const size_t part = name.find('.', layers.size()) + 1;
  const size_t kind = name.rfind('.') + 1;
  if (name.rfind(layers, 0) != 0 || part == 0 || kind <= part) {
    return false;
  }
  out = {name.substr(layers.size(), part - 1 - layers.size()), name.substr(part, kind - 1 - part),
         name.substr(kind)};
  return true;
}

/// The tensor's name in the other notation; an unknown one as it is.
std::string translated(const std::string& name, const Notation& from, const Notation& to,
                       bool post_norms) {
  if (const TensorName* known = find_name(kNames, name, from.name)) {
    return known->*to.name;
  }
  LayerName parts;
  const TensorName* part = parse_layer_name(name, from.layers, parts)
                               ? find_part(parts.part, from.name, post_norms)
                               : nullptr;
  return part == nullptr
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
/// each layer of old files, those that the base gives.
bool is_of_plan(const std::string& name) {
  LayerName parts;
  return name == "rope_freqs.weight" ||
         (parse_layer_name(name, kGguf.layers, parts) && parts.part == "attn_rot_embd");
}

}  // namespace

std::string gguf_name(const std::string& name, bool post_norms) {
  return translated(name, kHub, kGguf, post_norms);
}

GgufTensors::GgufTensors(std::shared_ptr<const GgufFile> file, const std::vector<LayerPlan>& plan)
    : file_(std::move(file)), post_norms_(!plan.empty() && plan.front().post_norms) {
  const int64_t head_dim = plan.empty() ? 0 : plan.front().head_dim;
  for (const TensorEntry& stored : file_->tensors()) {
    if (is_of_plan(stored.name)) {
      continue;
    }
    TensorEntry entry = stored;
    entry.name = translated(stored.name, kGguf, kHub, post_norms_);
    if (is_interleaved(*file_, stored.name) && !entry.shape.empty() && head_dim > 0 &&
        entry.shape[0] % head_dim == 0) {
      entry.interleaved_rows = head_dim;
    }
    const auto [known, is_new] = stored_names_.emplace(entry.name, stored.name);
    if (!is_new) {
      throw WeightsError(fmt::format(
          "{}: tensors '{}' and '{}' are the same part of the model ({}); one of them is wrong. "
          "Convert the model to GGUF anew.",
          folder().string(), known->second, stored.name, entry.name));
    }
    by_name_.emplace(entry.name, entries_.size());
    entries_.push_back(std::move(entry));
  }
}

const TensorEntry* GgufTensors::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
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
