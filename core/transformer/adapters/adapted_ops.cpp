#include "core/transformer/adapters/adapted_ops.h"

#include "core/error.h"

namespace specdec {

void AdaptedOps::linear(const Linear& weight, const Tensor& input, Tensor& out) {
  ForwardingOps::linear(weight, input, out);
  add_updates(weight, input, out);
}

void AdaptedOps::library_linear(const Linear& weight, const Tensor& input, Tensor& out) {
  ForwardingOps::library_linear(weight, input, out);
  add_updates(weight, input, out);
}

void AdaptedOps::add_updates(const Linear& weight, const Tensor& input, Tensor& out) {
  add_update(stack_, weight, input, out);
  if (draft_ != nullptr) {
    add_update(*draft_, weight, input, out);
  }
}

void AdaptedOps::add_and_norm(Tensor& residual, const Tensor& input, const Tensor& scale,
                              const Tensor& next, double eps, Tensor& normed) {
  ops().add_and_norm(residual, input, scale, next, eps, normed);
}

bool AdaptedOps::records() const {
  return ops().records() && stack_.adapters().empty() && draft_ == nullptr;
}

std::unique_ptr<OpsGraph> AdaptedOps::record(const std::function<void()>& calls) {
  SPECDEC_CHECK(records(), "a graph of adapters");
  return ops().record(calls);
}

void AdaptedOps::add_update(const AdapterStack& stack, const Linear& weight, const Tensor& input,
                            Tensor& out) {
  if (const AdapterStack::Update* update = stack.find(weight)) {
    const Tensor low = ops().linear(update->a, input);
    ops().add(out, ops().linear(update->b, low));
  }
}

}  // namespace specdec
