#pragma once

namespace specdec::cuda {

/// Blocks and threads of a launch. All shared memory is dynamic.
struct LaunchShape {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned threads = 1;  ///< of a block; a multiple of 32
  unsigned shared_bytes = 0;
  /// Blocks, neighbours in the first dimension, which run at the same time and can read each
  /// other's shared memory: 1 to kMaxCluster, of which grid_x is a multiple. More than 1 only where
  /// has_clusters().
  unsigned cluster = 1;
};

constexpr int kWarp = 32;

constexpr unsigned kMaxCluster = 8;

/// The most blocks of a launch in its second and third dimension.
constexpr int kMaxGridY = 65535;

/// cudaErrorInvalidValue: what a kernel's entry returns for arguments that it cannot take.
constexpr int kInvalidValue = 1;

}  // namespace specdec::cuda
