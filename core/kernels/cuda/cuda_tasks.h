#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/kernels/altup.h"
#include "core/kernels/clustered_head.h"
#include "core/kernels/cuda/cluster_kernels.h"
#include "core/kernels/cuda/gather_kernels.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/experts.h"
#include "core/kernels/forbidden_tokens.h"
#include "core/kernels/gated_activation.h"
#include "core/kernels/linear.h"
#include "core/kernels/per_layer_inputs.h"
#include "core/kernels/recurrence.h"

/// Tasks of the kernels from an op's tensors; those of a cache are in cuda_cache_tasks.h.
namespace specdec::cuda {

// Rows.

/// Task of a norm; `scale` may be nullptr.
RmsNormTask norm_task(const Tensor& input, const float* scale, double eps, Tensor& out);
ElementwiseTask add_task(const Tensor& input, Tensor& residual);
ElementwiseTask soft_cap_task(double cap, Tensor& values);
/// Task of out = factor * input * scale; an undefined scale is 1.
CopyRowsTask copy_rows_task(const Tensor& input, const Tensor& scale, double factor, Tensor& out);
/// Task that copies the input to the columns of `out` from `first` on.
CopyRowsTask copy_columns_task(const Tensor& input, int64_t first, Tensor& out);
GatherRowsTask gather_rows_task(const Tensor& input, const Tensor& rows, Tensor& out);
GatedActivationTask gated_activation_task(const Tensor& gate_up, Activation activation,
                                          Tensor& out);
CutGateTask cut_gate_task(double deviations, Tensor& gate_up);
PerLayerInputsTask per_layer_inputs_task(const Tensor& context, const Tensor& token,
                                         const PerLayerOptions& options, Tensor& out);
ForbidTask forbid_task(const ForbiddenTokens& tokens, Tensor& logits);
/// Task of the best tokens of rows of logits, to `found`, int32 [3 * rows]; without its workspace.
ArgmaxTask argmax_task(const Tensor& logits, Tensor& found);

// Residual streams of AltUp.

AltUpRouteTask altup_route_task(const Tensor& input, const AltUpRouter& router, Tensor& out);
AltUpPredictTask altup_predict_task(const Tensor& streams, const Tensor& routes,
                                    const Tensor& coefficients, Tensor& out);
AltUpCorrectTask altup_correct_task(const Tensor& activated, const Tensor& routes,
                                    const Tensor& coefficients, int64_t active, Tensor& streams);
MatchRmsTask match_rms_task(const Tensor& like, Tensor& values);
MeanStreamTask mean_stream_task(const Tensor& streams, Tensor& out);

// Products of a part of a matrix, whose outputs are columns of `out`.

/// Task of a float32 part.
LinearTask linear_task(const Linear& weight, const Linear::Part& part, const Tensor& input,
                       Tensor& out);
/// Task of a part in fragments; without its workspace.
TensorLinearTask tensor_linear_task(const Linear& weight, const Linear::Part& part,
                                    const Tensor& input, Tensor& out);
/// Task of a look-up in a matrix of one part; `ids` are int32 on the device.
EmbedRowsTask embed_rows_task(const Linear& table, const Tensor& ids, double factor, Tensor& out);
/// Task of a head of one part; without its workspace.
ScoreClustersTask score_clusters_task(const ClusteredHead& head, const Tensor& centroid_scores,
                                      const Tensor& states, Tensor& logits);

// Experts.

RouteTask route_task(const Tensor& logits, const Tensor& output_scale, Routes& routes);
/// Task of the matrices of experts, which follow one another; without its workspace.
ExpertLinearTask expert_linear_task(const std::vector<Linear>& experts, const Tensor& input,
                                    const Tensor& chosen, Tensor& out);
/// Task that adds up the outputs of experts, as `routes` weighs them.
ExpertSumTask expert_sum_task(const Tensor& outputs, const Routes& routes, Tensor& out);

// Recurrent layers.

/// Task of a recurrent layer whose numbers begin at `offset` in a state; without its workspace.
RecurrenceTask recurrence_task(const RecurrenceTensors& weights, const NodeStates& states,
                               int64_t offset, Tensor& branches);

}  // namespace specdec::cuda
