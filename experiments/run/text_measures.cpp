#include "experiments/run/text_measures.h"

#include <algorithm>
#include <cmath>

#include "decoders/analysis/draft_bias.h"
#include "decoders/analysis/sequence_score.h"
#include "experiments/metrics/cache_records.h"

namespace specdec {
namespace {

constexpr uint64_t kLossTraceSeed = 0x6c6f7373;

bool is_lossy(const Arm& arm) { return arm.config->notes.promise == Promise::kLossy; }

/// Elements of the keys and values in a format that a forward reads after `length` tokens: a layer
/// with a sliding window reads no more tokens than that holds.
int64_t cached_elements(std::span<const LayerPlan> plan, KvFormat format, int64_t length) {
  int64_t elements = 0;
  for (const LayerPlan& layer : plan) {
    const int64_t seen = layer.window == 0 ? length : std::min(length, layer.window);
    elements += 2 * layer.kv_heads * kv_width(format, layer.head_dim) * seen;
  }
  return elements;
}

/// Bytes of a model's adapters: of all A of a matrix, and of all B over its whole output.
int64_t adapter_bytes(const TransformerModel& model) {
  int64_t numbers = 0;
  for (const ScaledAdapter& each : model.adapters().adapters()) {
    for (const LoraPair& pair : each.adapter->pairs) {
      numbers += pair.a.size(0) * (pair.matrix->in() + pair.matrix->out());
    }
  }
  return numbers * static_cast<int64_t>(c10::elementSize(model.weights().compute_dtype()));
}

/// Bias of a traced output; none for a strategy whose drafter cannot be traced: it has none, or
/// needs a tree.
std::optional<BiasSums> trace_bias(DecodingStrategy& tracer, const Request& request,
                                   TokenSpan output) {
  DraftBias bias;
  return bias.add_text(tracer, request, output) ? std::optional(bias.sums()) : std::nullopt;
}

}  // namespace

bool measures_loss(const Group& group, const Arm& arm) {
  const Arm& first = group.arms.front();
  if (!group.config->quality.measure_loss || is_lossy(first)) {
    return false;
  }
  return is_lossy(arm) || (arm.config->name == first.config->name &&
                           std::any_of(group.arms.begin(), group.arms.end(),
                                       [](const Arm& other) { return is_lossy(other); }));
}

bool traces_loss(const Group& group, const Arm& arm) {
  return measures_loss(group, arm) && is_lossy(arm) && !group.config->sampling.greedy();
}

CacheState cache_state(const TransformerModel& model) {
  const KvTrace* trace = model.cache().trace();
  return {.tiers = model.cache().statistics().tiers,
          .trace = trace == nullptr ? std::nullopt : std::optional(*trace)};
}

void note_cache(const TransformerModel& model, const CacheState& before, GenerationRecord& record) {
  const KvStatistics use = model.cache().statistics();
  record.cache_bytes = static_cast<double>(use.used_bytes());
  record.cache_pages = static_cast<double>(use.used_pages);
  record.cache_shared_pages = static_cast<double>(use.shared_pages);
  record.cache_free_pages = static_cast<double>(use.free_pages + use.spare_pages);
  record.cache_fragmentation = use.fragmentation();
  if (before.tiers && use.tiers) {
    record.cache_tiers = tiers_between(*before.tiers, *use.tiers);
  }
  if (before.trace) {
    record.cache_trace = *model.cache().trace() - *before.trace;
  }
}

void note_disk(const TransformerModel& model, const std::optional<LayerReads>& before,
               GenerationRecord& record) {
  if (!before) {
    return;
  }
  const LayerReads reads = *layer_reads(model.weights()) - *before;
  record.disk_bytes = static_cast<double>(reads.bytes);
  record.disk_layers = static_cast<double>(reads.layers);
  record.disk_layers_ready = static_cast<double>(reads.ready);
  record.disk_wait_seconds = reads.wait_seconds;
}

std::optional<double> bytes_per_step(const Group& group, const Item& item,
                                     const Generation& generation) {
  if (generation.steps.empty()) {
    return std::nullopt;
  }
  const TransformerWeights& weights = group.target->weights();
  const KvFormat format = kv_format_of(group.config->model);
  int64_t elements = 0;  // of keys and values, summed over steps
  int64_t length = std::ssize(item.tokens);
  for (const StepStatistics& step : generation.steps) {
    elements += cached_elements(weights.plan, format, length);
    length += step.committed;
  }
  const auto element_bytes =
      static_cast<double>(c10::elementSize(kv_element_type(format, weights.compute_dtype())));
  return static_cast<double>(forward_bytes(weights) + adapter_bytes(*group.target)) +
         static_cast<double>(elements) * element_bytes /
             static_cast<double>(generation.steps.size());
}

CounterRandomness loss_randomness() { return CounterRandomness(kLossTraceSeed); }

void measure_loss(const Group& group, const Arm& arm, const Request& request,
                  GenerationRecord& record) {
  const auto& output = record.generation.tokens;
  if (!measures_loss(group, arm) || output.empty()) {
    return;
  }
  const double log_prob = output_log_prob(*group.target, request.prompt, output);
  if (std::isfinite(log_prob)) {
    record.log_prob = log_prob;
  }
  if (arm.tracer != nullptr) {
    record.bias = trace_bias(*arm.tracer, request, output);
  }
}

}  // namespace specdec
