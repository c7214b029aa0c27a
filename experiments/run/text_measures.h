#pragma once
#include "core/layer_reads.h"
#include "core/randomness.h"
#include "experiments/run/arms.h"

namespace specdec {

/// True where an arm's texts are measured against the target: those of lossy strategies, and of the
/// first one beside them, which must not be lossy itself.
bool measures_loss(const Group& group, const Arm& arm);
/// True where an arm's texts are traced too: a lossy strategy samples. The arm then has a tracer.
bool traces_loss(const Group& group, const Arm& arm);

/// What a model's cache has counted.
struct CacheState {
  std::optional<KvTiers> tiers = {};  ///< of one with pages on disk
  std::optional<KvTrace> trace = {};  ///< of one that traces
};
CacheState cache_state(const TransformerModel& model);
/// Notes how the model's cache is used now, and what it counted since `before`.
void note_cache(const TransformerModel& model, const CacheState& before, GenerationRecord& record);
/// What was read from disk of the target's layers since `before`, if some lie there.
void note_disk(const TransformerModel& model, const std::optional<LayerReads>& before,
               GenerationRecord& record);

/// See GenerationRecord::bytes_per_step; none without steps.
std::optional<double> bytes_per_step(const Group& group, const Item& item,
                                     const Generation& generation);

/// Randomness of measure_loss's request, should a drafter draw: other random numbers than drew the
/// texts.
CounterRandomness loss_randomness();
/// Fills log_prob, and of traced arms bias, of a generation. `request` is the same as it was made
/// with, but for its randomness. One forward over the text, and of traced arms one a token.
void measure_loss(const Group& group, const Arm& arm, const Request& request,
                  GenerationRecord& record);

}  // namespace specdec
