#pragma once
#include <memory>

#include "core/kernels/ops.h"

namespace specdec::mps {

/// The ops by the Metal kernels, run on the CPU. Memory is the host's.
std::shared_ptr<Ops> emulated_metal_ops();

}  // namespace specdec::mps
