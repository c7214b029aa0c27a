#pragma once
#include <string>

namespace specdec::cuda {

/// Allocates from now on, for `new` and for LibTorch's CPU tensors, memory that a GPU reads and
/// writes at the same address. Launches wait for their end. Returns why it cannot, or nothing. What
/// was allocated before stays as it is. Memory is kept until the process ends.
std::string use_pinned_memory();

/// Allocates as use_pinned_memory, but ordinary memory: to test it where there is no GPU.
void rehearse_pinned_memory();

/// Name and memory of the GPU, for people.
std::string device_name();

}  // namespace specdec::cuda
