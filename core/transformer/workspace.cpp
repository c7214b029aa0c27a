#include "core/transformer/workspace.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

/// Decoding and verifying use few nodes, in ever the same numbers; prefill chunks are larger.
constexpr int64_t kSmall = Workspace::kMostSelected;

/// The largest number that any layer says.
template <class F>
int64_t widest(const std::vector<LayerPlan>& plan, const F& number) {
  int64_t most = 0;
  for (const LayerPlan& layer : plan) {
    most = std::max<int64_t>(most, number(layer));
  }
  return most;
}

int64_t bytes_of(at::IntArrayRef sizes, at::ScalarType type) {
  return c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type));
}

/// Where a tensor may begin that lies behind so many bytes, on any device.
int64_t aligned(int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The first numbers of `memory` as rows.
Tensor view_rows(const Tensor& memory, int64_t nodes, int64_t width) {
  return memory.narrow(0, 0, nodes * width).view({nodes, width});
}

}  // namespace

Workspace::Workspace(const TransformerInfo& model)
    : plan_(model.plan),
      hidden_(model.config.hidden_size),
      per_layer_count_(model.config.per_layer_count),
      dtype_(model.compute_dtype()),
      device_(model.place.device) {}

Activations& Workspace::activations(int64_t nodes) {
  if (nodes <= kSmall) {
    const Take own = [this](at::IntArrayRef sizes, at::ScalarType type) {
      return at::empty(sizes, at::TensorOptions(type).device(device_));
    };
    const auto found = small_.find(nodes);
    return found != small_.end() ? found->second
                                 : small_.emplace(nodes, allocate(nodes, own)).first->second;
  }
  if (nodes != large_nodes_) {
    large_ = {};
    large_nodes_ = 0;
    if (const int64_t needed = bytes(nodes); !memory_.defined() || memory_.size(0) < needed) {
      memory_ = Tensor();  // before it takes more
      memory_ = at::empty({needed}, at::TensorOptions(at::kByte).device(device_));
    }
    int64_t used = 0;
    large_ = allocate(nodes, [&](at::IntArrayRef sizes, at::ScalarType type) {
      const int64_t size = bytes_of(sizes, type);
      const int64_t begin = std::exchange(used, used + aligned(size));
      return memory_.narrow(0, begin, size).view(type).view(sizes);
    });
    large_nodes_ = nodes;
  }
  return large_;
}

int64_t Workspace::bytes(int64_t nodes) const {
  int64_t bytes = 0;
  allocate(nodes, [&](at::IntArrayRef sizes, at::ScalarType type) {
    bytes += aligned(bytes_of(sizes, type));
    return at::empty(sizes, at::TensorOptions(type).device(at::kMeta));  // takes no memory
  });
  return bytes;
}

Activations& Workspace::selected(const Activations& from, const Tensor& nodes) {
  SPECDEC_CHECK(nodes.size(0) <= kMostSelected && nodes.size(0) < from.residual.size(0),
                "workspace: {} of {} nodes", nodes.size(0), from.residual.size(0));
  Activations& to = activations(nodes.size(0));
  const auto copy = [&nodes](const Tensor& all, Tensor& some, int64_t dim) {
    if (all.defined()) {
      at::index_select_out(some, all, dim, nodes);
    }
  };
  copy(from.residual, to.residual, 0);
  copy(from.family.per_layer, to.family.per_layer, 1);
  copy(from.family.streams, to.family.streams, 1);
  return to;
}

Activations Workspace::allocate(int64_t nodes, const Take& take) const {
  const auto rows = [&](int64_t count, int64_t width) { return take({count, width}, dtype_); };
  Activations a;
  a.residual = rows(nodes, hidden_);
  a.last = a.residual.narrow(0, nodes - 1, 1);
  a.normed = rows(nodes, hidden_);
  if (widest(plan_, [](const LayerPlan& layer) { return layer.joined_inputs ? 1 : 0; }) > 0) {
    a.joined = rows(nodes, 2 * hidden_);
    a.attention_inputs = rows(nodes, hidden_);
  }
  a.branch = rows(nodes, hidden_);
  allocate_layers(nodes, take, a);
  allocate_family(nodes, take, a.family);
  return a;
}

void Workspace::allocate_layers(int64_t nodes, const Take& take, Activations& a) const {
  const auto memory = [&](int64_t width) { return take({nodes * width}, dtype_); };
  const auto intermediate = [](const LayerPlan& layer) { return layer.intermediate_size; };
  const Tensor qkv = memory(widest(plan_, qkv_rows));
  const Tensor queries = memory(widest(plan_, query_rows));
  const Tensor mixed = memory(widest(plan_, query_rows));
  const Tensor gate_up = memory(2 * widest(plan_, intermediate));
  const Tensor gated = memory(widest(plan_, intermediate));
  for (const LayerPlan& plan : plan_) {
    LayerActivations layer;
    layer.qkv = view_rows(qkv, nodes, qkv_rows(plan));
    layer.queries =
        view_rows(queries, nodes, query_rows(plan)).view({nodes, plan.heads, plan.head_dim});
    layer.mixed_flat = view_rows(mixed, nodes, query_rows(plan));
    layer.mixed = layer.mixed_flat.view({nodes, plan.heads, plan.head_dim});
    layer.gate_up = view_rows(gate_up, nodes, 2 * plan.intermediate_size);
    layer.gated = view_rows(gated, nodes, plan.intermediate_size);
    a.layers.push_back(std::move(layer));
  }
}

void Workspace::allocate_family(int64_t nodes, const Take& take, FamilyActivations& a) const {
  const auto rows = [&](int64_t count, int64_t width) { return take({count, width}, dtype_); };
  const LayerPlan& first = plan_.front();
  if (const int64_t size = first.per_layer_size; size > 0) {
    a.per_layer = take({per_layer_count_, nodes, size}, dtype_);
    a.context = rows(nodes, per_layer_count_ * size);
    a.token = rows(nodes, per_layer_count_ * size);
    a.gate = rows(nodes, size);
    a.gate_and_input = rows(nodes, 2 * size);
    a.gated_input = rows(nodes, size);
  }
  if (const ExpertsPlan& experts = first.experts; experts.count > 0) {
    const int64_t pairs = nodes * experts.chosen;
    a.router_logits = rows(nodes, experts.count);
    a.routes.experts = take({nodes, experts.chosen}, at::kInt);
    a.routes.weights = rows(nodes, experts.chosen);
    a.experts.inputs = rows(pairs, hidden_);
    a.experts.gate_up = rows(pairs, 2 * experts.intermediate_size);
    a.experts.gated = rows(pairs, experts.intermediate_size);
    a.experts.outputs = rows(pairs, hidden_);
    a.mixture = rows(nodes, hidden_);
  }
  if (const int64_t streams = first.altup.streams; streams > 0) {
    a.streams = take({streams, nodes, hidden_}, dtype_);
    a.predictions = take({streams, nodes, hidden_}, dtype_);
    a.stream_routes = rows(nodes, streams);
  }
  if (first.laurel_rank > 0) {
    a.low_rank = rows(nodes, first.laurel_rank);
    a.laurel = rows(nodes, hidden_);
  }
}

int64_t activation_bytes(const TransformerInfo& model, int64_t nodes) {
  return Workspace(model).bytes(nodes);
}

}  // namespace specdec
