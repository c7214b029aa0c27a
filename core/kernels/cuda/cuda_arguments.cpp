#include "core/kernels/cuda/cuda_arguments.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/error.h"
#include "core/kernels/pooled_keys.h"

namespace specdec::cuda {

int32_t narrow(int64_t number) {
  SPECDEC_CHECK(number >= 0 && number <= std::numeric_limits<int32_t>::max(), "size {}", number);
  return static_cast<int32_t>(number);
}

WeightFormat kernel_format(WeightFormat format) {
  if (format == WeightFormat::kFloat64) {
    throw Error("float64 weights run on the CPU only; use device: cpu, or dtype: float32");
  }
  return format;
}

const float* floats(const at::Tensor& tensor) {
  // Not is_plain: that asks for the host's memory, and where this one lies, the kernel's errors
  // say.
  SPECDEC_CHECK(tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous(),
                "CUDA: an operand is not contiguous float32");
  return tensor.const_data_ptr<float>();
}

float* floats_of(at::Tensor& tensor) { return const_cast<float*>(floats(tensor)); }

const float* floats_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? floats(tensor) : nullptr;
}

const int32_t* integers(const at::Tensor& tensor) { return tensor.const_data_ptr<int32_t>(); }

int64_t rows_of(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.numel() / tensor.size(-1);
}

PagedCache paged_cache(const KvView& view) {
  const int64_t together = kv_key_group(view.format);
  SPECDEC_CHECK(view.page_size() % together == 0 && view.exact.multiple % together == 0,
                "CUDA: {} in pages of {} beside exact ones from a multiple of {}",
                kv_format_name(view.format), view.page_size(), view.exact.multiple);
  const BatchTables& tables = *view.tables;
  PagedCache cache{};
  cache.keys = view.keys.mutable_data_ptr();
  cache.values = view.values.mutable_data_ptr();
  cache.format = view.format;
  cache.hadamard = view.rotation == KvRotation::kHadamard;
  cache.kv_heads = narrow(view.kv_heads());
  cache.head_dim = narrow(view.head_dim());
  cache.page_size = narrow(view.page_size());
  cache.width = narrow(view.values.size(3));
  cache.window = narrow(view.window);
  cache.sink = narrow(view.sink);
  cache.page_stride = narrow(view.page_stride());
  cache.rows = integers(tables.rows);
  cache.slots = integers(tables.slots);
  cache.positions = integers(tables.positions);
  cache.angles = integers(tables.angles);
  cache.path_starts = integers(tables.path_starts);
  cache.paths = integers(tables.paths);
  cache.lengths = integers(tables.lengths);
  cache.page_table = view.page_table();
  cache.levels = floats_or_null(view.levels);
  if (view.exact.recent > 0) {
    Tensor keys = view.exact.keys;
    Tensor values = view.exact.values;
    cache.exact = {floats_of(keys), floats_of(values), view.exact_page_table(),
                   narrow(view.exact.recent), narrow(view.exact.multiple)};
  }
  return cache;
}

RoundKeysTask round_keys_task(const KvView& view) {
  return {.cache = paged_cache(view), .nodes = narrow(view.tables->nodes)};
}

PagedCache cache_to_read(const KvView& view) {
  PagedCache cache = paged_cache(view);
  if (view.read == KvRead::kUpperHalf) {
    SPECDEC_CHECK(view.format == KvFormat::kHierarchical, "CUDA: upper halves of a cache in {}",
                  kv_format_name(view.format));
    cache.format = KvFormat::kQ4;  // they and the scales lie as its codes do
  }
  return cache;
}

RecurrenceTask recurrence_task(const RecurrenceTensors& weights, const NodeStates& states,
                               int64_t offset, Tensor& branches) {
  static_assert(sizeof(RecurrenceNode) == sizeof(NodeState));
  SPECDEC_CHECK(branches.size(0) <= states.nodes.size(0), "CUDA: {} nodes have {} states",
                branches.size(0), states.nodes.size(0));
  RecurrenceTask task{};
  task.branches = floats_of(branches);
  task.states = const_cast<float*>(floats(states.memory)) + offset;
  task.nodes = reinterpret_cast<const RecurrenceNode*>(integers(states.nodes));
  task.convolution = floats(weights.convolution);
  task.convolution_bias = floats(weights.convolution_bias);
  task.input_gate = floats(weights.input_gate);
  task.input_gate_bias = floats(weights.input_gate_bias);
  task.decay_gate = floats(weights.decay_gate);
  task.decay_gate_bias = floats(weights.decay_gate_bias);
  task.decay = floats(weights.decay);
  task.state_stride = states.memory.size(1);
  task.count = narrow(branches.size(0));
  task.channels = narrow(weights.convolution.size(1));
  task.width = narrow(weights.convolution.size(0));
  task.blocks = narrow(weights.input_gate.size(0));
  return task;
}

PooledCache pooled_cache(const KvView& view) {
  PooledCache cache{};
  if (view.pooled == nullptr || view.pooled->columns() == 0) {
    return cache;
  }
  const PooledKeys& means = *view.pooled;
  Tensor made = means.made();
  Tensor keys = means.keys();
  Tensor values = means.values();
  cache.keys = floats_of(keys);
  cache.values = floats_of(values);
  cache.made = made.mutable_data_ptr<int32_t>();
  cache.columns = narrow(means.columns());
  cache.own_first = narrow(means.own_column(0));
  cache.own_each = narrow(means.own_columns());
  cache.chunk = narrow(means.pooling().chunk);
  cache.recent = narrow(means.pooling().recent);
  cache.log_chunk = std::log(static_cast<float>(means.pooling().chunk));
  return cache;
}

PoolKeysTask pool_keys_task(const KvView& view) {
  return {.cache = paged_cache(view),
          .pooled = pooled_cache(view),
          .nodes = narrow(view.tables->nodes)};
}

PagedAttentionTask attention_task(const Tensor& queries, const KvView& view,
                                  const AttentionOptions& options, Tensor& out) {
  const int64_t positions = view.tables->longest;
  SPECDEC_CHECK(positions > 0, "CUDA: tables that do not say how long their rows are");
  const auto chunks_of = [](int64_t keys) {
    return narrow((keys + kCudaAttentionChunk - 1) / kCudaAttentionChunk);
  };
  PagedAttentionTask task{};
  task.queries = floats(queries);
  task.out = floats_of(out);
  task.cache = cache_to_read(view);
  task.nodes = narrow(view.tables->nodes);
  task.heads = narrow(queries.size(1));
  task.chunks = chunks_of(positions);
  task.pooled = pooled_cache(view);
  if (task.pooled.keys != nullptr) {
    task.mean_chunks = chunks_of(view.pooled->pooling().means_at(positions - 1));
  }
  if (task.cache.exact.recent > 0) {
    // One more than they fill, since the first may begin anywhere in its chunk, of which a group of
    // keys is a part.
    static_assert(kCudaAttentionChunk % kKeyGroup == 0);
    task.exact_chunks = std::min(task.chunks, chunks_of(task.cache.exact.recent - 1) + 1);
    const bool reads_exact_alone =
        view.window > 0 && view.window <= view.exact.recent && view.sink == 0;
    task.chunks = reads_exact_alone ? 0 : task.chunks;
  }
  task.scale = static_cast<float>(options.scale);
  task.soft_cap = static_cast<float>(options.soft_cap);
  return task;
}

namespace {

/// A product's rows, sizes and bias, without its weights.
template <class Task>
Task row_task(const Linear& weight, const Linear::Part& part, const Tensor& input, Tensor& out) {
  const float* bias = floats_or_null(weight.bias());
  Task task{};
  task.bias = bias == nullptr ? nullptr : bias + part.first;
  task.input = floats(input);
  task.out = floats_of(out) + part.first;
  task.out_stride = weight.out();
  task.rows = narrow(input.size(0));
  task.in = narrow(weight.in());
  task.outputs = narrow(part.out);
  return task;
}

}  // namespace

LinearTask linear_task(const Linear& weight, const Linear::Part& part, const Tensor& input,
                       Tensor& out) {
  LinearTask task = row_task<LinearTask>(weight, part, input, out);
  task.weight = floats(part.packed);
  return task;
}

TensorLinearTask tensor_linear_task(const Linear& weight, const Linear::Part& part,
                                    const Tensor& input, Tensor& out) {
  TensorLinearTask task = row_task<TensorLinearTask>(weight, part, input, out);
  task.fragments = part.packed.const_data_ptr();
  task.format = kernel_format(part.format);
  return task;
}

ExpertLinearTask expert_linear_task(const std::vector<Linear>& experts, const Tensor& input,
                                    const Tensor& chosen, Tensor& out) {
  const Linear& first = experts.front();
  const auto* begin = static_cast<const std::byte*>(first.parts().front().packed.const_data_ptr());
  const auto* last =
      static_cast<const std::byte*>(experts.back().parts().front().packed.const_data_ptr());
  const int64_t steps = std::ssize(experts) - 1;
  const int64_t step = steps == 0 ? first.bytes() : (last - begin) / steps;
  SPECDEC_CHECK(step >= first.bytes() && begin + steps * step == last,
                "CUDA: experts that do not follow one another");
  ExpertLinearTask task{};
  task.weight = begin;
  task.expert_bytes = step;
  task.format = kernel_format(first.format());
  task.experts = integers(chosen);
  task.input = floats(input);
  task.out = floats_of(out);
  task.pairs = narrow(chosen.numel());
  task.rows_share = narrow(chosen.numel() / input.size(0));
  task.count = narrow(std::ssize(experts));
  task.in = narrow(first.in());
  task.outputs = narrow(first.out());
  return task;
}

ScoreClustersTask score_clusters_task(const ClusteredHead& head, const at::Tensor& centroid_scores,
                                      const at::Tensor& states, at::Tensor& logits) {
  check_cluster_sizes(head, centroid_scores, states, logits);
  const Linear::Part& part = head.weight.parts().front();
  SPECDEC_CHECK(head.weight.parts().size() == 1 &&
                    part.in_fragments == (part.format != WeightFormat::kFloat32),
                "CUDA: an ordered head in {} parts of {}", head.weight.parts().size(),
                format_name(part.format));
  ScoreClustersTask task{};
  task.centroid_scores = floats(centroid_scores);
  task.states = floats(states);
  task.weight = part.packed.const_data_ptr();
  task.format = kernel_format(part.format);
  task.tokens = integers(head.clusters.tokens);
  task.places = integers(head.clusters.places);
  task.logits = floats_of(logits);
  task.rows = narrow(states.size(0));
  task.in = narrow(head.weight.in());
  task.clusters = narrow(head.clusters.tokens.size(0));
  task.each = narrow(head.clusters.tokens.size(1));
  task.chosen = narrow(head.chosen);
  task.fills_below = head.fill == CentroidFill::kBelowMinimum;
  return task;
}

}  // namespace specdec::cuda
