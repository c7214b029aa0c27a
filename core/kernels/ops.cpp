#include "core/kernels/ops.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/key_groups.h"
#include "core/kernels/linear_product.h"
#include "core/kernels/linear_rows.h"
#include "core/kernels/norm.h"
#include "core/kernels/route_watch.h"
#include "core/kernels/soft_cap.h"
#include "core/kernels/sparse_gate.h"

namespace specdec {
namespace {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(RouteWatch watch = {}) : watch_(std::move(watch)) {}

  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    linear_product(weight, input, out);
  }
  void embed_rows(const Linear& table, const Tensor& ids, double factor, Tensor& out) override {
    specdec::embed_rows(table, ids, factor, out);
  }
  void rms_norm(const Tensor& input, const Tensor& scale, double eps, Tensor& out) override {
    specdec::rms_norm(input, scale, eps, out);
  }
  void add_rms_norm(Tensor& residual, const Tensor& input, const Tensor& scale,
                    double eps) override {
    specdec::add_rms_norm(residual, input, scale, eps);
  }
  void add(Tensor& residual, const Tensor& input) override { add_to(residual, input); }
  void copy(const Tensor& input, Tensor& out) override { scaled_copy(input, 1.0, out); }
  void concat(const Tensor& left, const Tensor& right, Tensor& out) override {
    copy_columns(left, 0, out);
    copy_columns(right, left.size(1), out);
  }
  void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                    Tensor& queries) override {
    specdec::qkv_to_cache(qkv, options, view, queries);
  }
  void round_keys(const KvView& view) override { specdec::round_keys(view); }
  void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                       Tensor& out) override {
    specdec::paged_attention(queries, view, options, out);
  }
  void gated_activation(const Tensor& gate_up, Activation activation, Tensor& out) override {
    specdec::gated_activation(gate_up, activation, out);
  }
  void soft_cap(Tensor& values, double cap) override { specdec::soft_cap(values, cap); }
  void scale(Tensor& values, double factor) override { scaled_copy(values, factor, values); }
  void multiply_rows(const Tensor& input, const Tensor& row, Tensor& out) override {
    specdec::multiply_rows(input, row, out);
  }

  void look_up(const RowTable& table, const Tensor& ids, double factor, Tensor& out) override {
    table.look_up(ids, factor, out);
  }
  void per_layer_inputs(const Tensor& context, const Tensor& token, const PerLayerOptions& options,
                        Tensor& out) override {
    specdec::per_layer_inputs(context, token, options, out);
  }
  void route(const Tensor& logits, const Tensor& output_scale, Routes& routes) override {
    specdec::route(logits, output_scale, routes);
    if (watch_) {
      watch_(routes);
    }
  }
  void apply_experts(const ExpertMatrices& experts, const Tensor& input, const Routes& routes,
                     ExpertBuffers& buffers, Tensor& out) override {
    specdec::apply_experts(experts, input, routes, buffers, out);
  }
  void cut_gate(Tensor& gate_up, double deviations) override {
    specdec::cut_gate(gate_up, deviations);
  }
  void altup_route(const Tensor& input, const AltUpRouter& router, Tensor& out) override {
    specdec::altup_route(input, router, out);
  }
  void altup_predict(const Tensor& streams, const Tensor& routes, const Tensor& coefficients,
                     Tensor& out) override {
    specdec::altup_predict(streams, routes, coefficients, out);
  }
  void altup_correct(const Tensor& activated, const Tensor& routes, const Tensor& coefficients,
                     int64_t active, Tensor& streams) override {
    specdec::altup_correct(activated, routes, coefficients, active, streams);
  }
  void match_rms(const Tensor& like, Tensor& values) override { specdec::match_rms(like, values); }
  void mean_stream(const Tensor& streams, Tensor& out) override {
    specdec::mean_stream(streams, out);
  }
  void recurrence(const RecurrenceTensors& weights, const NodeStates& states, int64_t offset,
                  Tensor& branches) override {
    specdec::recurrence(weights, states, offset, branches);
  }

 private:
  RouteWatch watch_;
};

at::TensorOptions computed_with(const Linear& weight) {
  return at::TensorOptions(weight.compute_dtype()).device(weight.device());
}

}  // namespace

void Ops::library_linear(const Linear& /*weight*/, const Tensor& /*input*/, Tensor& /*out*/) {
  SPECDEC_CHECK(false, "this device has no library of products");
}

std::unique_ptr<OpsGraph> Ops::record(const std::function<void()>& /*calls*/) {
  SPECDEC_CHECK(false, "this device records no graphs");
}

void Ops::add_and_norm(Tensor& residual, const Tensor& input, const Tensor& scale,
                       const Tensor& next, double eps, Tensor& normed) {
  if (scale.defined()) {
    add_rms_norm(residual, input, scale, eps);
  } else {
    add(residual, input);
  }
  rms_norm(residual, next, eps, normed);
}

void Ops::score_clusters(const ClusteredHead& head, const Tensor& centroid_scores,
                         const Tensor& states, Tensor& logits) {
  specdec::score_clusters(*this, head, centroid_scores, states, logits);
}

void Ops::gather_rows(const Tensor& input, const Tensor& rows, Tensor& out) {
  specdec::gather_rows(input, rows, out);
}

void Ops::forbid(const ForbiddenTokens& tokens, Tensor& logits) { tokens.apply(logits); }

void Ops::find_best(const Tensor& /*logits*/, Tensor& /*found*/) {
  SPECDEC_CHECK(false, "this device leaves best tokens to the host");
}

void Ops::round_keys(const KvView& /*view*/) {
  SPECDEC_CHECK(false, "this device rounds no groups of keys");
}

void Ops::recurrence(const RecurrenceTensors& /*weights*/, const NodeStates& /*states*/,
                     int64_t /*offset*/, Tensor& branches) {
  throw Error(fmt::format("no kernel evaluates recurrent layers on {}: choose device: cpu",
                          branches.device().str()));
}

Tensor Ops::result(int64_t rows, int64_t width, const at::TensorOptions& options) {
  return at::empty({rows, width}, options);
}

Tensor Ops::linear(const Linear& weight, const Tensor& input) {
  Tensor out = result(input.size(0), weight.out(), computed_with(weight));
  linear(weight, input, out);
  return out;
}

Tensor Ops::embed_rows(const Linear& table, const Tensor& ids, double factor) {
  Tensor out = result(ids.size(0), table.in(), computed_with(table));
  embed_rows(table, ids, factor, out);
  return out;
}

Tensor Ops::rms_norm(const Tensor& input, const Tensor& scale, double eps) {
  Tensor out = result(input.size(0), input.size(1), input.options());
  rms_norm(input, scale, eps, out);
  return out;
}

Tensor Ops::concat(const Tensor& left, const Tensor& right) {
  Tensor out = result(left.size(0), left.size(1) + right.size(1), left.options());
  concat(left, right, out);
  return out;
}

Tensor Ops::gather_rows(const Tensor& input, const Tensor& rows) {
  Tensor out = result(rows.size(0), input.size(1), input.options());
  gather_rows(input, rows, out);
  return out;
}

std::shared_ptr<Ops> cpu_ops() { return std::make_shared<CpuOps>(); }

std::shared_ptr<Ops> watched_cpu_ops(RouteWatch watch) {
  return std::make_shared<CpuOps>(std::move(watch));
}

}  // namespace specdec
