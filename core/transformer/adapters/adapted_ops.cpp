#include "core/transformer/adapters/adapted_ops.h"

namespace specdec {

void AdaptedOps::linear(const Linear& weight, const Tensor& input, Tensor& out) {
  ops_->linear(weight, input, out);
  add_update(stack_, weight, input, out);
  if (draft_ != nullptr) {
    add_update(*draft_, weight, input, out);
  }
}

void AdaptedOps::add_update(const AdapterStack& stack, const Linear& weight, const Tensor& input,
                            Tensor& out) {
  if (const AdapterStack::Update* update = stack.find(weight)) {
    const Tensor low = ops_->linear(update->a, input);
    ops_->add(out, ops_->linear(update->b, low));
  }
}

}  // namespace specdec
