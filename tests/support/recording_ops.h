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
/// called with its name and what it wrote.
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
  void concat(const Tensor& left, const Tensor& right, Tensor& out) override {
    device_->concat(left, right, out);
    note("concat", left, out);
  }
  void qkv_to_cache(const Tensor& qkv, const QkvOptions& options, const KvView& view,
                    Tensor& queries) override {
    device_->qkv_to_cache(qkv, options, view, queries);
    note("qkv_to_cache", qkv, queries);
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
