#include "core/families/recurrent_gemma/tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

struct PartName {
  std::string_view stored;
  std::string_view common;
};

constexpr PartName kPartNames[] = {{"final_norm.", "norm."},
                                   {".temporal_pre_norm.", ".input_layernorm."},
                                   {".channel_pre_norm.", ".post_attention_layernorm."},
                                   {".mlp_block.", ".mlp."},
                                   {".temporal_block.q_proj.", ".self_attn.q_proj."},
                                   {".temporal_block.k_proj.", ".self_attn.k_proj."},
                                   {".temporal_block.v_proj.", ".self_attn.v_proj."},
                                   {".temporal_block.o_proj.", ".self_attn.o_proj."}};

std::string renamed(std::string name, std::string_view PartName::*from,
                    std::string_view PartName::*to) {
  for (const PartName& part : kPartNames) {
    const size_t place = name.find(part.*from);
    const bool begins_a_word = place == 0 || (place != std::string::npos &&
                                              (name[place] == '.' || name[place - 1] == '.'));
    if (place != std::string::npos && begins_a_word) {
      return name.replace(place, (part.*from).size(), part.*to);
    }
  }
  return name;
}

/// The place of a head's dimension `place` in the order of other families, of `dim` dimensions of
/// which 2 * pairs are rotated: both halves of these begin a half of the head, others follow in
/// order.
size_t common_place(size_t place, size_t dim, size_t pairs) {
  const size_t other = place - std::min(place, 2 * pairs);  // among those not rotated
  const size_t left = dim / 2 - pairs;                      // of them in the first half
  return place < pairs       ? place
         : place < 2 * pairs ? dim / 2 + place - pairs
         : other < left      ? pairs + other
                             : dim / 2 + pairs + other - left;
}

bool holds(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

}  // namespace

RecurrentGemmaTensors::RecurrentGemmaTensors(std::shared_ptr<const TensorFiles> stored,
                                             const std::vector<LayerPlan>& plan)
    : stored_(std::move(stored)) {
  for (const LayerPlan& layer : plan) {
    if (!is_recurrent(layer)) {
      head_dim_ = layer.head_dim;
      rotated_pairs_ = layer.rope.rotated_pairs;
    }
  }
  for (const TensorEntry* entry : stored_->tensors()) {
    Part part{.entry = *entry, .stored = entry};
    part.entry.name = renamed(entry->name, &PartName::stored, &PartName::common);
    const std::string& name = part.entry.name;
    part.is_reordered = rotated_pairs_ > 0 && !entry->shape.empty() &&
                        (holds(name, ".self_attn.q_proj.") || holds(name, ".self_attn.k_proj.")) &&
                        entry->shape[0] > 0 && entry->shape[0] % head_dim_ == 0;
    if (part.is_reordered) {
      part.entry.bytes = {};
    }
    parts_.emplace(name, std::move(part));
  }
}

const TensorEntry* RecurrentGemmaTensors::find(std::string_view name) const {
  const auto found = parts_.find(name);
  return found == parts_.end() ? nullptr : &found->second.entry;
}

std::vector<const TensorEntry*> RecurrentGemmaTensors::tensors() const {
  std::vector<const TensorEntry*> all;
  for (const auto& [name, part] : parts_) {
    all.push_back(&part.entry);
  }
  return all;
}

void RecurrentGemmaTensors::provide(const TensorEntry& entry) const {
  Part& part = parts_.at(entry.name);
  if (!part.is_reordered) {
    return stored_->provide(*part.stored);
  }
  const std::lock_guard lock(mutex_);
  if (part.memory != nullptr) {
    return;
  }
  stored_->provide(*part.stored);
  const auto from = part.stored->bytes;
  part.memory = std::make_unique<std::byte[]>(from.size());
  const auto rows = static_cast<size_t>(entry.shape[0]);
  const size_t row_bytes = from.size() / rows;
  const auto dim = static_cast<size_t>(head_dim_);
  const auto pairs = static_cast<size_t>(rotated_pairs_);
  for (size_t row = 0; row < rows; ++row) {
    const size_t place = row % dim;
    std::memcpy(part.memory.get() + (row - place + common_place(place, dim, pairs)) * row_bytes,
                from.data() + row * row_bytes, row_bytes);
  }
  part.entry.bytes = {part.memory.get(), from.size()};
  stored_->release(*part.stored);
}

void RecurrentGemmaTensors::release(const TensorEntry& entry, size_t begin, size_t size) const {
  Part& part = parts_.at(entry.name);
  if (!part.is_reordered) {
    return stored_->release(*part.stored, begin, size);
  }
  const std::lock_guard lock(mutex_);
  if (begin == 0 && size >= part.entry.bytes.size()) {
    part.entry.bytes = {};
    part.memory.reset();
  }
}

std::vector<std::pair<std::string, std::string>> RecurrentGemmaTensors::missing() const {
  auto all = stored_->missing();
  for (auto& [tensor, shard] : all) {
    tensor = renamed(tensor, &PartName::stored, &PartName::common);
  }
  return all;
}

std::string RecurrentGemmaTensors::stored_name(const std::string& name) const {
  const auto found = parts_.find(name);
  return stored_->stored_name(found != parts_.end() ? found->second.stored->name
                                                    : recurrent_gemma_name(name));
}

std::string recurrent_gemma_name(const std::string& name) {
  return renamed(name, &PartName::common, &PartName::stored);
}

LayerTensors in_stored_order(const LayerPlan& plan, const LayerTensors& layer) {
  LayerTensors out = layer;
  if (is_recurrent(plan) || plan.rope.rotated_pairs == 0) {
    return out;
  }
  std::vector<int64_t> rows(static_cast<size_t>(qkv_rows(plan)));
  std::iota(rows.begin(), rows.end(), 0);
  const auto dim = static_cast<size_t>(plan.head_dim);
  const auto pairs = static_cast<size_t>(plan.rope.rotated_pairs);
  const auto reordered = static_cast<size_t>(query_rows(plan) + kv_rows(plan));  // not the values
  for (size_t row = 0; row < reordered; ++row) {
    const size_t place = row % dim;
    rows[row] = static_cast<int64_t>(row - place + common_place(place, dim, pairs));
  }
  const at::Tensor index = at::tensor(rows, at::kLong).to(layer.qkv.device());
  out.qkv = layer.qkv.index_select(0, index);
  if (layer.qkv_bias.defined()) {
    out.qkv_bias = layer.qkv_bias.index_select(0, index);
  }
  return out;
}

}  // namespace specdec
