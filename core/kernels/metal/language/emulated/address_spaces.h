#pragma once
// One address space, and the emulation's threads (core/kernels/cuda/emulation).
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/kernels/cuda/emulation/emulation.h"

#define device
#define constant
#define threadgroup
#define thread

using uchar = unsigned char;
using uint = unsigned;

namespace metal {
enum class mem_flags;
}
inline void threadgroup_barrier(metal::mem_flags /*flags*/) {
  specdec::cuda::emulation::sync_block();
}
