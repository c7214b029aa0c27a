#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/kernels/attention.h"
#include "core/kernels/clustered_head.h"
#include "core/kernels/cuda/cluster_kernels.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/kv_view.h"
#include "core/kernels/linear.h"

/// What the kernels' tasks hold, from tensors.
namespace specdec::cuda {

/// A size as kernels take it; a broken precondition where it has more than 31 bits.
int32_t narrow(int64_t number);
/// A format that kernels take: throws Error for float64.
WeightFormat kernel_format(WeightFormat format);
/// Contiguous float32 numbers; anything else is a broken precondition.
const float* floats(const at::Tensor& tensor);
float* floats_of(at::Tensor& tensor);
/// Numbers of a tensor as of floats(); nullptr for an undefined one.
const float* floats_or_null(const at::Tensor& tensor);
const int32_t* integers(const at::Tensor& tensor);
/// Rows of a tensor whose last dimension is a row.
int64_t rows_of(const at::Tensor& tensor);
/// Pages and tables of a layer.
PagedCache paged_cache(const KvView& view);
/// What qkv_to_cache leaves to be done in a format with groups of keys.
RoundKeysTask round_keys_task(const KvView& view);
/// Pages and tables of a layer for attention, which may read upper halves alone.
PagedCache cache_to_read(const KvView& view);
/// Task of a recurrent layer whose numbers begin at `offset` in a state; without its workspace.
RecurrenceTask recurrence_task(const RecurrenceTensors& weights, const NodeStates& states,
                               int64_t offset, Tensor& branches);
/// Means of a layer; empty where `view` has none.
PooledCache pooled_cache(const KvView& view);
/// Task of a view with means that have columns.
PoolKeysTask pool_keys_task(const KvView& view);
/// Task of attention over the chunks up to the last position of the tables; without bias and
/// workspace.
PagedAttentionTask attention_task(const Tensor& queries, const KvView& view,
                                  const AttentionOptions& options, Tensor& out);

// Products of a part of a matrix, whose outputs are columns of `out`.

/// Task of an fp32 part.
LinearTask linear_task(const Linear& weight, const Linear::Part& part, const Tensor& input,
                       Tensor& out);
/// Task of a part in fragments; without its workspace.
TensorLinearTask tensor_linear_task(const Linear& weight, const Linear::Part& part,
                                    const Tensor& input, Tensor& out);
/// Task of the matrices of experts, which follow one another; without its workspace.
ExpertLinearTask expert_linear_task(const std::vector<Linear>& experts, const Tensor& input,
                                    const Tensor& chosen, Tensor& out);

/// Task of a head of one part; without its workspace.
ScoreClustersTask score_clusters_task(const ClusteredHead& head, const at::Tensor& centroid_scores,
                                      const at::Tensor& states, at::Tensor& logits);

}  // namespace specdec::cuda
