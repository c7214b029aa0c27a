#pragma once
// Numbers as integers of the same order.
#include "core/kernels/device/portable.h"

namespace specdec::cuda {

/// An integer that orders as a number that is not NaN does; -0 is 0. It is neither 0 nor 2^32 - 1.
SPECDEC_DEVICE uint32_t order_of(float number) {
  const uint32_t bits = device::bits_of(number + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// The number of an order, NaN of 0.
SPECDEC_DEVICE float number_of_order(uint32_t order) {
  return device::float_of((order & 0x80000000U) != 0 ? order ^ 0x80000000U : ~order);
}

}  // namespace specdec::cuda
