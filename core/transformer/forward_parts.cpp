#include "core/transformer/forward_parts.h"

#include <ATen/ATen.h>

#include <cmath>

namespace specdec {

Tensor embed_tokens(Ops& ops, const TransformerWeights& weights, const Tensor& tokens) {
  return ops.embed_rows(weights.embedding, tokens, weights.embedding_scale);
}

Tensor head_logits(Ops& ops, const TransformerWeights& weights, const Tensor& hidden) {
  Tensor logits = ops.result(hidden.size(0), weights.head.out(), hidden.options());
  head_logits(ops, weights, hidden, logits);
  return logits;
}

void head_logits(Ops& ops, const TransformerWeights& weights, const Tensor& hidden,
                 Tensor& logits) {
  ops.linear(weights.head, hidden, logits);
  if (const double cap = weights.config.final_soft_cap; cap > 0.0) {
    ops.soft_cap(logits, cap);
  }
}

void find_last_nodes(const TokenBatch& batch, int64_t nodes, std::vector<int64_t>& last) {
  last.clear();
  for (int64_t node = 0; node < nodes; ++node) {
    const auto index = static_cast<size_t>(node);
    if (node + 1 == nodes || (!batch.rows.empty() && batch.rows[index + 1] != batch.rows[index])) {
      last.push_back(node);
    }
  }
}

Tensor rows_of_nodes(const Tensor& values, const std::vector<int64_t>& nodes) {
  if (std::ssize(nodes) == values.size(0)) {
    return values;
  }
  return nodes.size() == 1
             ? values.narrow(0, nodes[0], 1)
             : values.index_select(0, at::tensor(nodes, at::kLong).to(values.device()));
}

int64_t first_sharing(const std::vector<LayerPlan>& plan) {
  int64_t first = std::ssize(plan);
  while (first > 0 && plan[static_cast<size_t>(first - 1)].kv_source >= 0) {
    --first;
  }
  return first;
}

BatchTables selected_nodes(const BatchTables& all, const Tensor& nodes) {
  BatchTables some = all;
  some.nodes = nodes.size(0);
  for (Tensor BatchTables::*table :
       {&BatchTables::rows, &BatchTables::slots, &BatchTables::positions, &BatchTables::angles,
        &BatchTables::path_starts}) {
    some.*table = (all.*table).index_select(0, nodes);
  }
  return some;
}

BatchTables neighbouring_nodes(const BatchTables& all, int64_t first, int64_t count) {
  BatchTables some = all;
  some.nodes = count;
  for (Tensor BatchTables::*table :
       {&BatchTables::rows, &BatchTables::slots, &BatchTables::positions, &BatchTables::angles,
        &BatchTables::path_starts, &BatchTables::tokens}) {
    some.*table = (all.*table).narrow(0, first, count);
  }
  return some;
}

std::vector<GreedyChoice> read_best(const Tensor& found) {
  const Tensor block = found.cpu().flatten();
  const int64_t rows = block.size(0) / 3;
  const auto* ids = block.const_data_ptr<Token>();
  const Tensor largest = block.narrow(0, rows, 2 * rows).view(at::kFloat);
  const auto* numbers = largest.const_data_ptr<float>();
  std::vector<GreedyChoice> best;
  for (int64_t row = 0; row < rows; ++row, numbers += 2) {
    best.push_back({.token = std::isfinite(numbers[0]) ? ids[row] : -1,
                    .gap = static_cast<double>(numbers[0]) - static_cast<double>(numbers[1])});
  }
  return best;
}

/// A copy in the host's memory; a GPU writes it straight into pinned memory.
static Tensor on_host(const Tensor& tensor) {
  if (!tensor.is_cuda()) {
    return tensor.cpu();
  }
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true))
      .copy_(tensor);
}

void copy_to_host(Ops& ops, const ForwardOptions& options, ForwardResult& result) {
  const bool samples = ops.sampler() != nullptr;
  const auto copy = [&](Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_cpu() && !samples)) {
      return;
    }
    result.read_backs += {1, static_cast<int64_t>(tensor.nbytes())};
    tensor = on_host(tensor);
  };
  if (result.sampler == nullptr) {
    copy(result.logits);
  }
  if (options.keep_hidden) {
    return;
  }
  copy(result.final_hidden);
  for (Tensor& captured : result.captured) {
    copy(captured);
  }
}

}  // namespace specdec
