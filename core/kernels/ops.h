#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "core/device_sampler.h"
#include "core/kernels/altup.h"
#include "core/kernels/attention.h"
#include "core/kernels/clustered_head.h"
#include "core/kernels/experts.h"
#include "core/kernels/forbidden_tokens.h"
#include "core/kernels/gated_activation.h"
#include "core/kernels/linear.h"
#include "core/kernels/per_layer_inputs.h"
#include "core/kernels/qkv.h"
#include "core/kernels/recurrence.h"
#include "core/kernels/row_table.h"

namespace specdec {

/// Ops that a device has recorded, to be run again as a whole on the memory that they were called
/// with, whatever it holds by then. The caller keeps that memory; a workspace that the ops own
/// stays with the graph.
class OpsGraph {
 public:
  virtual ~OpsGraph() = default;
  /// Runs the recorded ops as if they were called now; results are the same, bit for bit.
  virtual void run() = 0;
};

/// What a device has to be able to do for a forward, which is a list of calls of these made from
/// the plan. Each op does what the kernel of its name says (core/kernels/), into memory that the
/// caller owns; calls are in order. One that wraps another device's sees every op, before and after
/// it runs.
class Ops {
 public:
  virtual ~Ops() = default;

  /// out = input * weight^T + bias. What another op has written to `input` is changed by ops alone
  /// before: a device may have read it already.
  virtual void linear(const Linear& weight, const Tensor& input, Tensor& out) = 0;
  /// Whether there is a library of products beside the device's own.
  virtual bool has_library() const { return false; }
  /// linear() by that library: bits of a row depend on the rows beside it. No graph holds it.
  virtual void library_linear(const Linear& weight, const Tensor& input, Tensor& out);
  /// out [n, in] = factor * rows of the weight; ids [n] int32.
  virtual void embed_rows(const Linear& table, const Tensor& ids, double factor, Tensor& out) = 0;
  virtual void rms_norm(const Tensor& input, const Tensor& scale, double eps, Tensor& out) = 0;
  /// residual += rms_norm(input).
  virtual void add_rms_norm(Tensor& residual, const Tensor& input, const Tensor& scale,
                            double eps) = 0;
  /// residual += rms_norm(input) by `scale`, or input as it is without one, then normed =
  /// rms_norm(residual) by `next`: the bits of the two ops, which it is where a device has no
  /// kernel for both.
  virtual void add_and_norm(Tensor& residual, const Tensor& input, const Tensor& scale,
                            const Tensor& next, double eps, Tensor& normed);
  /// residual += input.
  virtual void add(Tensor& residual, const Tensor& input) = 0;
  virtual void copy(const Tensor& input, Tensor& out) = 0;
  /// Row i of out [n, width] = row rows[i] of input [m, width]; rows [n] int32, below m, where the
  /// input lies. As gather_rows of core/kernels/elementwise.h, which it is where a device has no
  /// kernel for it.
  virtual void gather_rows(const Tensor& input, const Tensor& rows, Tensor& out);
  /// out [n, a + b] = left [n, a] beside right [n, b].
  virtual void concat(const Tensor& left, const Tensor& right, Tensor& out) = 0;
  virtual void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                            Tensor& queries) = 0;
  /// What qkv_to_cache does with keys of groups that it completes (core/kernels/key_groups.h), for
  /// tokens whose keys came into the exact pages otherwise.
  virtual void round_keys(const KvView& view);
  virtual void paged_attention(const Tensor& queries, const KvView& view,
                               const AttentionOptions& options, Tensor& out) = 0;
  virtual void gated_activation(const Tensor& gate_up, Activation activation, Tensor& out) = 0;
  /// Caps values in place.
  virtual void soft_cap(Tensor& values, double cap) = 0;
  /// values *= factor.
  virtual void scale(Tensor& values, double factor) = 0;
  /// out [n, size] = input * row [size].
  virtual void multiply_rows(const Tensor& input, const Tensor& row, Tensor& out) = 0;

  // Gemma 3n and 4; each as the function of this name in core/kernels/.
  virtual void look_up(const RowTable& table, const Tensor& ids, double factor, Tensor& out) = 0;
  virtual void per_layer_inputs(const Tensor& context, const Tensor& token,
                                const PerLayerOptions& options, Tensor& out) = 0;
  virtual void route(const Tensor& logits, const Tensor& output_scale, Routes& routes) = 0;
  virtual void apply_experts(const ExpertMatrices& experts, const Tensor& input,
                             const Routes& routes, ExpertBuffers& buffers, Tensor& out) = 0;
  virtual void cut_gate(Tensor& gate_up, double deviations) = 0;
  virtual void altup_route(const Tensor& input, const AltUpRouter& router, Tensor& out) = 0;
  virtual void altup_predict(const Tensor& streams, const Tensor& routes,
                             const Tensor& coefficients, Tensor& out) = 0;
  virtual void altup_correct(const Tensor& activated, const Tensor& routes,
                             const Tensor& coefficients, int64_t active, Tensor& streams) = 0;
  virtual void match_rms(const Tensor& like, Tensor& values) = 0;
  virtual void mean_stream(const Tensor& streams, Tensor& out) = 0;

  /// Runs a recurrent layer as the function of this name does. Throws Error on devices without it.
  virtual void recurrence(const RecurrenceTensors& weights, const NodeStates& states,
                          int64_t offset, Tensor& branches);

  /// Logits [n, vocab] of the tokens of each row's best clusters: as score_clusters of
  /// core/kernels/clustered_head.h, which it is where a device has no kernel for it.
  virtual void score_clusters(const ClusteredHead& head, const Tensor& centroid_scores,
                              const Tensor& states, Tensor& logits);
  /// Logits [n, vocab or more] of tokens that may not be generated become -inf. Ops that record
  /// have to record it.
  virtual void forbid(const ForbiddenTokens& tokens, Tensor& logits);
  /// Whether the device finds best tokens; else rows lie on the host, which looks at those it
  /// needs.
  virtual bool finds_best() const { return false; }
  /// The two largest logits of each of n rows, in a block of 3 n int32 that is read back at once:
  /// the id of the largest, the lowest on a tie, -1 where a number of the row is NaN; then the bits
  /// of both, [n, 2] float32. Throws InternalError where finds_best() is false.
  virtual void find_best(const Tensor& logits, Tensor& found);
  /// What decides about sampled drafts by logits on the device; nullptr where the host does.
  virtual std::shared_ptr<DeviceSampler> sampler() { return nullptr; }

  /// Whether the device records graphs. One that wraps another sees each call only where it does
  /// not.
  virtual bool records() const { return false; }
  /// Records the ops that `calls` calls, and runs none of them. They should have run before, on
  /// operands of these sizes: what a first run allocates or loads cannot be recorded. Throws what
  /// `calls` throws, and Error where the device cannot record it; then nothing is recorded. Throws
  /// InternalError for ops that copy from or to the host, and where records() is false.
  virtual std::unique_ptr<OpsGraph> record(const std::function<void()>& calls);

  /// Memory for what one of the following comes to, [rows, width] of any content.
  virtual Tensor result(int64_t rows, int64_t width, const at::TensorOptions& options);
  // The ops of these names, with their results in memory that result() gives.
  Tensor linear(const Linear& weight, const Tensor& input);
  Tensor embed_rows(const Linear& table, const Tensor& ids, double factor);
  Tensor rms_norm(const Tensor& input, const Tensor& scale, double eps);
  Tensor concat(const Tensor& left, const Tensor& right);
  Tensor gather_rows(const Tensor& input, const Tensor& rows);
};

/// Calls the kernels of core/kernels/, on the team of threads. Stateless.
std::shared_ptr<Ops> cpu_ops();

/// The ops of a device. Throws Error for one that this build has none for.
std::shared_ptr<Ops> device_ops(at::Device device);

}  // namespace specdec
