#pragma once
#include <cstdint>
#include <vector>

#include "core/randomness.h"

namespace specdec {

constexpr int64_t kVerifyPosition = 70;  // of row 0; each next row is one further

/// What names the random numbers of some rows to the verification kernels: those of
/// verify_randomness(seed, row).
struct VerifyArguments {
  std::vector<uint32_t> keys;
  std::vector<int64_t> positions;

  VerifyArguments(int64_t rows, uint64_t seed) {
    for (int64_t row = 0; row < rows; ++row) {  // as CounterRandomness makes its key
      const auto block =
          philox4x32({static_cast<uint32_t>(row), 0, 0, 0},
                     {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32U)});
      keys.insert(keys.end(), {block[0], block[1]});
      positions.push_back(kVerifyPosition + row);
    }
  }
};

inline CounterRandomness verify_randomness(uint64_t seed, int64_t row) {
  CounterRandomness random(seed, static_cast<uint32_t>(row));
  random.seek(kVerifyPosition + row, Purpose::kVerify);
  return random;
}

}  // namespace specdec
