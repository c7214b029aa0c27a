#include "core/transformer/weights.h"

namespace specdec {

at::ScalarType TransformerWeights::compute_dtype() const {
  return weight_dtype() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace specdec
