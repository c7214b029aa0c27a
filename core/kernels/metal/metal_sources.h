#pragma once
#include <span>

namespace specdec::mps {

/// A .metal file with the headers that it includes, as Metal's compiler gets it at run time.
struct MetalSource {
  const char* name;  ///< "norm"
  const char* text;
};

/// All of core/kernels/metal/, embedded when specdec is built. Live as long as the program.
std::span<const MetalSource> metal_sources();

}  // namespace specdec::mps
