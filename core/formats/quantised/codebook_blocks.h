#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/formats/dtype.h"

namespace specdec {

// Blocks whose codes of four bits stand for the numbers of a table, times a float32 scale that 16
// or 32 successive inputs share: the IQ, ternary and FP4 types of GGUF, whose grids, signs and
// shifts all come to at most 16 numbers; and FP4_16, FP4_32 and NF4_32, which matrices of
// quantised folders become. A block of these is the scale (float32), then the codes as in GGUF's
// Q4_0 (of 16 inputs: byte k has input k in its low half, input k + 8 in its high one).

/// Numbers that the codes stand for; places that no code names hold 0.
using Codebook = std::array<float, 16>;

/// Whether a dtype is one of these.
bool is_codebook_block(DType dtype);
const Codebook& codebook_of(DType dtype);
/// Inputs that share a scale: 16 or 32.
int64_t codebook_scale_inputs(DType dtype);

/// The codes of one block, [block_values], in a byte each, and its scales,
/// [block_values / codebook_scale_inputs]. The block needs no alignment.
void read_codebook_block(DType dtype, const std::byte* block, uint8_t* codes, float* scales);
/// Writes the values of consecutive blocks as float32: numbers times scales, rounded once, exactly
/// as gguf-py does.
void read_codebook_values(DType dtype, const std::byte* blocks, int64_t values, float* out);
/// Writes a block of FP4_16, FP4_32 or NF4_32 from codes in a byte each.
void write_codebook_block(DType dtype, const uint8_t* codes, float scale, std::byte* block);

}  // namespace specdec
