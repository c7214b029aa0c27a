#include "core/transformer/adapters/adapted_ops.h"

namespace specdec {

void AdaptedOps::linear(const Linear& weight, const Tensor& input, Tensor& out) {
  ops_->linear(weight, input, out);
  if (const AdapterStack::Update* update = stack_.find(weight)) {
    const Tensor low = ops_->linear(update->a, input);
    ops_->add(out, ops_->linear(update->b, low));
  }
}

}  // namespace specdec
