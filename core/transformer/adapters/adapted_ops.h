#pragma once
#include <memory>
#include <utility>

#include "core/kernels/forwarding_ops.h"
#include "core/transformer/adapters/adapter_stack.h"

namespace specdec {

/// A device's ops, whose products add what the adapters of a stack add to their matrix, and those
/// of the draft that is being evaluated. Everything else is handed on. Borrows the stacks, which
/// may change between forwards.
class AdaptedOps final : public ForwardingOps {
 public:
  AdaptedOps(std::shared_ptr<Ops> ops, const AdapterStack& stack)
      : ForwardingOps(std::move(ops)), stack_(stack) {}

  /// Applies the adapters of a draft too, from now on; nullptr: the model's alone.
  void set_draft(const AdapterStack* draft) { draft_ = draft; }

  void linear(const Linear& weight, const Tensor& input, Tensor& out) override;
  void library_linear(const Linear& weight, const Tensor& input, Tensor& out) override;

  /// Adds and norms in one launch: it holds no product.
  void add_and_norm(Tensor& residual, const Tensor& input, const Tensor& scale, const Tensor& next,
                    double eps, Tensor& normed) override;

  /// Whether graphs are recorded: not with adapters, since a product that they update takes memory.
  bool records() const override;
  std::unique_ptr<OpsGraph> record(const std::function<void()>& calls) override;

 private:
  void add_updates(const Linear& weight, const Tensor& input, Tensor& out);
  void add_update(const AdapterStack& stack, const Linear& weight, const Tensor& input,
                  Tensor& out);

  const AdapterStack& stack_;
  const AdapterStack* draft_ = nullptr;
};

/// A draft's adapters (nullptr: none) are applied as long as it lives.
class AppliedDraft {
 public:
  AppliedDraft(AdaptedOps& ops, const AdapterStack* draft) : ops_(ops) { ops_.set_draft(draft); }
  ~AppliedDraft() { ops_.set_draft(nullptr); }
  AppliedDraft(const AppliedDraft&) = delete;
  AppliedDraft& operator=(const AppliedDraft&) = delete;

 private:
  AdaptedOps& ops_;
};

}  // namespace specdec
