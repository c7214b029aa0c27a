#pragma once

namespace specdec::cuda {

/// Blocks and threads of a launch. All shared memory is dynamic.
struct LaunchShape {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned threads = 1;  ///< of a block; a multiple of 32
  unsigned shared_bytes = 0;
};

constexpr int kWarp = 32;

/// The most blocks of a launch in its second and third dimension.
constexpr int kMaxGridY = 65535;

/// cudaErrorInvalidValue: what a kernel's entry returns for arguments that it cannot take.
constexpr int kInvalidValue = 1;

}  // namespace specdec::cuda
