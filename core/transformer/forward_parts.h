#pragma once
#include <cstdint>
#include <vector>

#include "core/forward.h"
#include "core/kernels/kv_view.h"
#include "core/kernels/ops.h"
#include "core/transformer/weights.h"

namespace specdec {

// Parts of the forward that heads on a target share.

/// Input embeddings as the first layer sees them: tokens [n] int32 -> [n, hidden].
Tensor embed_tokens(Ops& ops, const TransformerWeights& weights, const Tensor& tokens);
/// Final-normed hidden states to logits, soft cap included: [n, hidden] -> [n, vocab].
Tensor head_logits(Ops& ops, const TransformerWeights& weights, const Tensor& hidden);
/// Writes the logits to memory [n, vocab] of the caller.
void head_logits(Ops& ops, const TransformerWeights& weights, const Tensor& hidden, Tensor& logits);
/// Sets `last` to the last node of each row of a batch of n nodes, ascending.
void find_last_nodes(const TokenBatch& batch, int64_t nodes, std::vector<int64_t>& last);
/// The rows of `values` [n, ...] that belong to some nodes, ascending.
Tensor rows_of_nodes(const Tensor& values, const std::vector<int64_t>& nodes);
/// The first of the last layers that have no keys and values of their own; the number of layers
/// where the last one has.
int64_t first_sharing(const std::vector<LayerPlan>& plan);
/// Tables of some of a batch's nodes, which only read.
BatchTables selected_nodes(const BatchTables& all, const Tensor& nodes);
/// Tables of `count` nodes from `first` on, in the memory of `all`.
BatchTables neighbouring_nodes(const BatchTables& all, int64_t first, int64_t count);
/// The best token of each row, -1 where a row holds no numbers: reads what Ops::find_best found.
std::vector<GreedyChoice> read_best(const Tensor& found);
constexpr int64_t kBestTokenBytes = 12;  ///< that a row's best token is read back in
/// Copies what a forward gives to the host's memory, and counts the copies; nothing where it lies
/// there. Logits that a sampler reads stay, and what the options keep. Ops that sample count as a
/// device's, also where its memory is the host's.
void copy_to_host(Ops& ops, const ForwardOptions& options, ForwardResult& result);

}  // namespace specdec
