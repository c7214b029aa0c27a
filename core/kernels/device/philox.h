#pragma once
#include "core/kernels/device/portable.h"

namespace specdec::portable {

/// A counter of Philox4x32-10 (Salmon et al., 2011), or the random numbers that it gives.
struct PhiloxBlock {
  uint32_t words[4];
};

/// A block of random numbers, as philox4x32 of core/randomness.h gives it.
SPECDEC_DEVICE PhiloxBlock philox(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(0xD2511F53U) * counter.words[0];
    const uint64_t product1 = static_cast<uint64_t>(0xCD9E8D57U) * counter.words[2];
    counter = {{static_cast<uint32_t>(product1 >> 32U) ^ counter.words[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32U) ^ counter.words[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return counter;
}

/// The 53 bits of a uniform number of CounterRandomness: it is bits * 2^-53, in [0, 1).
SPECDEC_DEVICE uint64_t uniform_bits(PhiloxBlock block) {
  return (static_cast<uint64_t>(block.words[0]) << 32U | block.words[1]) >> 11U;
}

#if !defined(__METAL_VERSION__)  // which has no float64
/// What CounterRandomness of this key gives as choice `choice` at (position, purpose).
SPECDEC_DEVICE double uniform(uint32_t key0, uint32_t key1, uint64_t position, uint32_t purpose,
                              uint32_t choice) {
  const PhiloxBlock counter = {
      {choice, purpose, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32U)}};
  return static_cast<double>(uniform_bits(philox(counter, key0, key1))) *
         (1.0 / 9007199254740992.0);
}
#endif

}  // namespace specdec::portable
