#pragma once
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/ops.h"

namespace specdec {

/// Another device's ops, noted one by one: "linear [2, 16] -> [2, 32]". After each one `after` is
/// called with its name and what it wrote. What is recorded as a graph is not noted.
class RecordingOps final : public Ops {
 public:
  using After = std::function<void(const std::string& name, const Tensor& out)>;

  explicit RecordingOps(std::shared_ptr<Ops> device = cpu_ops(), After after = nullptr)
      : device_(std::move(device)), after_(std::move(after)) {}

  std::vector<std::string> take_calls() { return std::exchange(calls_, {}); }

  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    device_->linear(weight, input, out);
    note("linear", input, out);
  }
  void embed_rows(const Linear& table, const Tensor& ids, double factor, Tensor& out) override {
    device_->embed_rows(table, ids, factor, out);
    note("embed_rows", ids, out);
  }
  void rms_norm(const Tensor& input, const Tensor& scale, double eps, Tensor& out) override {
    device_->rms_norm(input, scale, eps, out);
    note("rms_norm", input, out);
  }
  void add_rms_norm(Tensor& residual, const Tensor& input, const Tensor& scale,
                    double eps) override {
    device_->add_rms_norm(residual, input, scale, eps);
    note("add_rms_norm", input, residual);
  }
  void add(Tensor& residual, const Tensor& input) override {
    device_->add(residual, input);
    note("add", input, residual);
  }
  void copy(const Tensor& input, Tensor& out) override {
    device_->copy(input, out);
    note("copy", input, out);
  }
  void gather_rows(const Tensor& input, const Tensor& rows, Tensor& out) override {
    device_->gather_rows(input, rows, out);
    note("gather_rows", input, out);
  }
  void concat(const Tensor& left, const Tensor& right, Tensor& out) override {
    device_->concat(left, right, out);
    note("concat", left, out);
  }
  void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                    Tensor& queries) override {
    device_->qkv_to_cache(qkv, options, view, queries);
    note("qkv_to_cache", qkv, queries);
  }
  void round_keys(const KvView& view) override {
    device_->round_keys(view);
    note("round_keys", view.exact.keys, view.keys);
  }
  void paged_attention(const Tensor& queries, const KvView& view, const AttentionOptions& options,
                       Tensor& out) override {
    device_->paged_attention(queries, view, options, out);
    note("paged_attention", queries, out);
  }
  void gated_activation(const Tensor& gate_up, Activation activation, Tensor& out) override {
    device_->gated_activation(gate_up, activation, out);
    note("gated_activation", gate_up, out);
  }
  void soft_cap(Tensor& values, double cap) override {
    device_->soft_cap(values, cap);
    note("soft_cap", values, values);
  }
  void scale(Tensor& values, double factor) override {
    device_->scale(values, factor);
    note("scale", values, values);
  }
  void multiply_rows(const Tensor& input, const Tensor& row, Tensor& out) override {
    device_->multiply_rows(input, row, out);
    note("multiply_rows", input, out);
  }
  void look_up(const RowTable& table, const Tensor& ids, double factor, Tensor& out) override {
    device_->look_up(table, ids, factor, out);
    note("look_up", ids, out);
  }
  void per_layer_inputs(const Tensor& context, const Tensor& token, const PerLayerOptions& options,
                        Tensor& out) override {
    device_->per_layer_inputs(context, token, options, out);
    note("per_layer_inputs", context, out);
  }
  void route(const Tensor& logits, const Tensor& output_scale, Routes& routes) override {
    device_->route(logits, output_scale, routes);
    note("route", logits, routes.weights);
  }
  void apply_experts(const ExpertMatrices& experts, const Tensor& input, const Routes& routes,
                     ExpertBuffers& buffers, Tensor& out) override {
    device_->apply_experts(experts, input, routes, buffers, out);
    note("apply_experts", input, out);
  }
  void cut_gate(Tensor& gate_up, double deviations) override {
    device_->cut_gate(gate_up, deviations);
    note("cut_gate", gate_up, gate_up);
  }
  void altup_route(const Tensor& input, const AltUpRouter& router, Tensor& out) override {
    device_->altup_route(input, router, out);
    note("altup_route", input, out);
  }
  void altup_predict(const Tensor& streams, const Tensor& routes, const Tensor& coefficients,
                     Tensor& out) override {
    device_->altup_predict(streams, routes, coefficients, out);
    note("altup_predict", streams, out);
  }
  void altup_correct(const Tensor& activated, const Tensor& routes, const Tensor& coefficients,
                     int64_t active, Tensor& streams) override {
    device_->altup_correct(activated, routes, coefficients, active, streams);
    note("altup_correct", activated, streams);
  }
  void match_rms(const Tensor& like, Tensor& values) override {
    device_->match_rms(like, values);
    note("match_rms", like, values);
  }
  void mean_stream(const Tensor& streams, Tensor& out) override {
    device_->mean_stream(streams, out);
    note("mean_stream", streams, out);
  }
  void score_clusters(const ClusteredHead& head, const Tensor& centroid_scores,
                      const Tensor& states, Tensor& logits) override {
    device_->score_clusters(head, centroid_scores, states, logits);
    note("score_clusters", states, logits);
  }
  void forbid(const ForbiddenTokens& tokens, Tensor& logits) override {
    device_->forbid(tokens, logits);
    note("forbid", logits, logits);
  }
  bool finds_best() const override { return device_->finds_best(); }
  void find_best(const Tensor& logits, Tensor& found) override {
    device_->find_best(logits, found);
    note("find_best", logits, found);
  }
  std::shared_ptr<DeviceSampler> sampler() override { return device_->sampler(); }
  bool records() const override { return device_->records(); }
  std::unique_ptr<OpsGraph> record(const std::function<void()>& calls) override {
    const std::vector<std::string> before = calls_;
    auto graph = device_->record(calls);
    calls_ = before;
    return graph;
  }

 private:
  void note(const std::string& name, const Tensor& input, const Tensor& out) {
    calls_.push_back(fmt::format("{} [{}] -> [{}]", name, fmt::join(input.sizes(), ", "),
                                 fmt::join(out.sizes(), ", ")));
    if (after_) {
      after_(name, out);
    }
  }

  std::shared_ptr<Ops> device_;
  After after_;
  std::vector<std::string> calls_;
};

}  // namespace specdec
