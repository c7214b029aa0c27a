#pragma once
#include <cstdint>

namespace specdec {

/// Bits of a bfloat16 or float16 weight, as stored.
struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

}  // namespace specdec
