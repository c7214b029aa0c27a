#pragma once
#include <memory>
#include <utility>

#include "core/kernels/ops.h"

namespace specdec {

/// A device's ops, each handed on as it is: what changes some of them derives from it. It records
/// no graphs unless it says so.
class ForwardingOps : public Ops {
 public:
  explicit ForwardingOps(std::shared_ptr<Ops> ops) : ops_(std::move(ops)) {}

  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ops_->linear(weight, input, out);
  }
  bool has_library() const override { return ops_->has_library(); }
  void library_linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ops_->library_linear(weight, input, out);
  }
  void embed_rows(const Linear& table, const Tensor& ids, double factor, Tensor& out) override {
    ops_->embed_rows(table, ids, factor, out);
  }
  void rms_norm(const Tensor& input, const Tensor& scale, double eps, Tensor& out) override {
    ops_->rms_norm(input, scale, eps, out);
  }
  void add_rms_norm(Tensor& residual, const Tensor& input, const Tensor& scale,
                    double eps) override {
    ops_->add_rms_norm(residual, input, scale, eps);
  }
  void add(Tensor& residual, const Tensor& input) override { ops_->add(residual, input); }
  void copy(const Tensor& input, Tensor& out) override { ops_->copy(input, out); }
  void gather_rows(const Tensor& input, const Tensor& rows, Tensor& out) override {
    ops_->gather_rows(input, rows, out);
  }
  void concat(const Tensor& left, const Tensor& right, Tensor& out) override {
    ops_->concat(left, right, out);
  }
  void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                    Tensor& queries) override {
    ops_->qkv_to_cache(qkv, options, view, queries);
  }
  void round_keys(const KvView& view) override { ops_->round_keys(view); }
  void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                       Tensor& out) override {
    ops_->paged_attention(queries, view, options, out);
  }
  void gated_activation(const Tensor& gate_up, Activation activation, Tensor& out) override {
    ops_->gated_activation(gate_up, activation, out);
  }
  void soft_cap(Tensor& values, double cap) override { ops_->soft_cap(values, cap); }
  void scale(Tensor& values, double factor) override { ops_->scale(values, factor); }
  void multiply_rows(const Tensor& input, const Tensor& row, Tensor& out) override {
    ops_->multiply_rows(input, row, out);
  }
  void look_up(const RowTable& table, const Tensor& ids, double factor, Tensor& out) override {
    ops_->look_up(table, ids, factor, out);
  }
  void per_layer_inputs(const Tensor& context, const Tensor& token, const PerLayerOptions& options,
                        Tensor& out) override {
    ops_->per_layer_inputs(context, token, options, out);
  }
  void route(const Tensor& logits, const Tensor& output_scale, Routes& routes) override {
    ops_->route(logits, output_scale, routes);
  }
  void apply_experts(const ExpertMatrices& experts, const Tensor& input, const Routes& routes,
                     ExpertBuffers& buffers, Tensor& out) override {
    ops_->apply_experts(experts, input, routes, buffers, out);
  }
  void cut_gate(Tensor& gate_up, double deviations) override {
    ops_->cut_gate(gate_up, deviations);
  }
  void altup_route(const Tensor& input, const AltUpRouter& router, Tensor& out) override {
    ops_->altup_route(input, router, out);
  }
  void altup_predict(const Tensor& streams, const Tensor& routes, const Tensor& coefficients,
                     Tensor& out) override {
    ops_->altup_predict(streams, routes, coefficients, out);
  }
  void altup_correct(const Tensor& activated, const Tensor& routes, const Tensor& coefficients,
                     int64_t active, Tensor& streams) override {
    ops_->altup_correct(activated, routes, coefficients, active, streams);
  }
  void match_rms(const Tensor& like, Tensor& values) override { ops_->match_rms(like, values); }
  void mean_stream(const Tensor& streams, Tensor& out) override { ops_->mean_stream(streams, out); }
  void recurrence(const RecurrenceTensors& weights, const NodeStates& states, int64_t offset,
                  Tensor& branches) override {
    ops_->recurrence(weights, states, offset, branches);
  }
  void score_clusters(const ClusteredHead& head, const Tensor& centroid_scores,
                      const Tensor& states, Tensor& logits) override {
    ops_->score_clusters(head, centroid_scores, states, logits);
  }
  void forbid(const ForbiddenTokens& tokens, Tensor& logits) override {
    ops_->forbid(tokens, logits);
  }
  bool finds_best() const override { return ops_->finds_best(); }
  void find_best(const Tensor& logits, Tensor& found) override { ops_->find_best(logits, found); }
  std::shared_ptr<DeviceSampler> sampler() override { return ops_->sampler(); }

 protected:
  Ops& ops() const { return *ops_; }

 private:
  std::shared_ptr<Ops> ops_;
};

}  // namespace specdec
