#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace specdec::cuda::emulation {

constexpr size_t kLanes = 32;

using Slot = std::array<uint32_t, 6>;        // what a lane passes to the others of its warp
using TileProducts = std::array<double, 4>;  // of a lane

/// The product of the tiles that the lanes of a warp hold as mma.m16n8k16 of bfloat16 says: of a
/// lane's slot, four words are pairs of a [16, 16] and two of b [16, 8].
void multiply_slots(const std::array<Slot, kLanes>& slots,
                    std::array<TileProducts, kLanes>& products);

}  // namespace specdec::cuda::emulation
