#pragma once
#include <c10/core/Device.h>

#include <cstdint>

namespace specdec {

/// A device for tests of placement, whose kernels are those of the CPU: the same numbers as there.
/// As on a GPU, an op that is given tensors of two devices is an error, and the host cannot read
/// its memory: addresses are not those of the process. Single numbers of the host may be operands.
at::Device watched_device();

/// How often the host has read what the device computed, and so waited for it: numbers, copies, and
/// sizes that depend on numbers.
int64_t host_reads();

}  // namespace specdec
