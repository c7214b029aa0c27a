#include "tests/core/kernels/cuda/machine.h"

namespace specdec::cuda {

bool runs_on_a_gpu() { return false; }

}  // namespace specdec::cuda
