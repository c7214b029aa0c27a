#pragma once
#include <array>
#include <cstdint>

namespace specdec {

// The grids of GGUF's IQ types, as llama.cpp defines them: an entry is some digits, lowest first.
// Digits of two bits, eight an entry: -1, 0, 1 in IQ1_S and IQ1_M; 8, 25, 43 in IQ2. Of three bits,
// four an entry: 4, 12, 20, 28, 36, 44, 52, 62 in IQ3_XXS; 1, 3, ..., 15 in IQ3_S.

extern const std::array<uint16_t, 2048> kIq1Grid;
extern const std::array<uint16_t, 256> kIq2XxsGrid;
extern const std::array<uint16_t, 512> kIq2XsGrid;
extern const std::array<uint16_t, 1024> kIq2SGrid;
extern const std::array<uint16_t, 256> kIq3XxsGrid;
extern const std::array<uint16_t, 512> kIq3SGrid;

}  // namespace specdec
