#include "core/families/gguf/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>

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
                                 {"post_attention_norm", "post_attention_layernorm"},
                                 {"post_ffw_norm", "post_feedforward_layernorm"}};

const char* hub_part(const std::string& part, bool post_norms) {
  if (part == "ffn_norm") {
    // In Gemma 1 and Llama the hub calls the norm BEFORE the MLP so.
    return post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  }
  for (const TensorName& known : kParts) {
    if (part == known.gguf) {
      return known.hub;
    }
  }
  return nullptr;
}

/// "blk.3.attn_q.weight" -> 3, "attn_q", "weight"
struct LayerName {
  std::string layer, part, kind;
};

bool parse_layer_name(const std::string& name, LayerName& out) {
  const size_t layer = name.find('.') + 1;
  const size_t part = name.find('.', layer) + 1;
  const size_t kind = name.rfind('.') + 1;
  if (name.rfind("blk.", 0) != 0 || part == 0 || kind <= part) {
    return false;
  }
  out = {name.substr(layer, part - 1 - layer), name.substr(part, kind - 1 - part),
         name.substr(kind)};
  return true;
}

std::string hub_name(const std::string& name, bool post_norms) {
  for (const TensorName& known : kNames) {
    if (name == known.gguf) {
      return known.hub;
    }
  }
  LayerName parts;
  const char* hub = parse_layer_name(name, parts) ? hub_part(parts.part, post_norms) : nullptr;
  return hub == nullptr ? name : fmt::format("model.layers.{}.{}.{}", parts.layer, hub, parts.kind);
}

/// llama.cpp rotates neighbouring pairs in architecture `llama` and stores the rows of q and k so.
bool is_interleaved(const GgufFile& file, const std::string& name) {
  LayerName parts;
  return file.metadata().text("general.architecture") == "llama" && parse_layer_name(name, parts) &&
         (parts.part == "attn_q" || parts.part == "attn_k");
}

}  // namespace

GgufTensors::GgufTensors(std::shared_ptr<const GgufFile> file, const std::vector<LayerPlan>& plan)
    : file_(std::move(file)) {
  const LayerPlan layer = plan.empty() ? LayerPlan() : plan.front();
  for (const TensorEntry& stored : file_->tensors()) {
    if (stored.name == "rope_freqs.weight") {
      continue;  // a part of the plan: describe_gguf
    }
    TensorEntry entry = stored;
    entry.name = hub_name(stored.name, layer.post_norms);
    if (is_interleaved(*file_, stored.name) && !entry.shape.empty() && layer.head_dim > 0 &&
        entry.shape[0] % layer.head_dim == 0) {
      entry.interleaved_rows = layer.head_dim;
    }
    stored_names_.emplace(entry.name, stored.name);
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
  if (found != stored_names_.end()) {
    return found->second;
  }
  // A missing one: by the table, the other way round.
  for (const TensorName& known : kNames) {
    if (name == known.hub) {
      return known.gguf;
    }
  }
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = name.find('.', kLayers.size());
  const size_t kind = name.rfind('.');
  if (name.rfind(kLayers, 0) != 0 || dot == std::string::npos || kind <= dot) {
    return name;
  }
  const std::string part = name.substr(dot + 1, kind - dot - 1);
  const std::string layer = name.substr(kLayers.size(), dot - kLayers.size());
  for (const TensorName& known : kParts) {
    if (part == known.hub) {
      return fmt::format("blk.{}.{}{}", layer, known.gguf, name.substr(kind));
    }
  }
  return fmt::format("blk.{}.ffn_norm{}", layer, name.substr(kind));
}

}  // namespace specdec
