#pragma once

namespace specdec::cuda {

/// Whether the kernels that this program links run on a GPU; else in the emulation, where tests
/// choose smaller sizes.
bool runs_on_a_gpu();

}  // namespace specdec::cuda
