#include "core/kernels/cuda/emulation/tile_product.h"

#include <bit>

namespace specdec::cuda::emulation {
namespace {

constexpr size_t kRows = 16;
constexpr size_t kInner = 16;
constexpr size_t kColumns = 8;

/// The bfloat16 in the low half of a pair, and in the high one.
double low_of(uint32_t pair) { return std::bit_cast<float>(pair << 16U); }
double high_of(uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000U); }

}  // namespace

void multiply_slots(const std::array<Slot, kLanes>& slots,
                    std::array<TileProducts, kLanes>& products) {
  double a[kRows][kInner];
  double b[kInner][kColumns];
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const Slot& slot = slots[lane];
    const size_t outer = lane / 4;
    const size_t inner = lane % 4 * 2;
    a[outer][inner] = low_of(slot[0]);
    a[outer][inner + 1] = high_of(slot[0]);
    a[outer + 8][inner] = low_of(slot[1]);
    a[outer + 8][inner + 1] = high_of(slot[1]);
    a[outer][inner + 8] = low_of(slot[2]);
    a[outer][inner + 9] = high_of(slot[2]);
    a[outer + 8][inner + 8] = low_of(slot[3]);
    a[outer + 8][inner + 9] = high_of(slot[3]);
    b[inner][outer] = low_of(slot[4]);
    b[inner + 1][outer] = high_of(slot[4]);
    b[inner + 8][outer] = low_of(slot[5]);
    b[inner + 9][outer] = high_of(slot[5]);
  }
  for (size_t row = 0; row < kRows; ++row) {
    double sums[kColumns] = {};
    for (size_t k = 0; k < kInner; ++k) {
      for (size_t column = 0; column < kColumns; ++column) {
        sums[column] += a[row][k] * b[k][column];
      }
    }
    for (size_t column = 0; column < kColumns; ++column) {
      products[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2] = sums[column];
    }
  }
}

}  // namespace specdec::cuda::emulation
