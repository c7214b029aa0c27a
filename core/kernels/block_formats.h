#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.h"
#include "core/kernels/panels.h"

namespace specdec {

// The blocks of 32 inputs of a panel. A weight is (code - kOffset) * scale + minimum, exactly as
// gguf-py widens the block of GGUF that has the same codes and scales. Codes of four successive
// inputs of an output lie in a word. kStoredBytes: of one output's block in a GGUF file.

/// GGUF's Q8_0.
struct Int8Block {
  static constexpr int kOffset = 128;
  static constexpr bool kHasMinima = false;
  static constexpr int64_t kStoredBytes = 34;
  Fp16 scales[kPanel];
  uint8_t codes[kBlockInputs / 4][kPanel][4];
};

/// GGUF's Q4_0. A byte holds the codes of inputs k (its low half) and k + 16.
struct Q40Block {
  static constexpr int kOffset = 8;
  static constexpr bool kHasMinima = false;
  static constexpr int64_t kStoredBytes = 18;
  Fp16 scales[kPanel];
  uint8_t codes[kBlockInputs / 8][kPanel][4];
};

/// GGUF's Q4_1. Bytes as in Q4_0.
struct Q41Block {
  static constexpr int kOffset = 0;
  static constexpr bool kHasMinima = true;
  static constexpr int64_t kStoredBytes = 20;
  Fp16 scales[kPanel];
  Fp16 minima[kPanel];
  uint8_t codes[kBlockInputs / 8][kPanel][4];
};

static_assert(sizeof(Int8Block) == kPanel * Int8Block::kStoredBytes);
static_assert(sizeof(Q40Block) == kPanel * Q40Block::kStoredBytes);
static_assert(sizeof(Q41Block) == kPanel * Q41Block::kStoredBytes);

/// Calls use(block) with a null pointer to the format's block type.
template <class Use>
decltype(auto) with_block_type(WeightFormat format, const Use& use) {
  SPECDEC_CHECK(is_in_blocks(format), "weights that are not in blocks");
  if (format == WeightFormat::kQ40) {
    return use(static_cast<Q40Block*>(nullptr));
  }
  if (format == WeightFormat::kQ41) {
    return use(static_cast<Q41Block*>(nullptr));
  }
  return use(static_cast<Int8Block*>(nullptr));
}

/// Rounds rows [n, in] float32 to int8 blocks, as outputs first .. of the panels: a block's scale
/// is its largest magnitude / 127, as llama.cpp quantises Q8_0.
void quantize_rows_int8(const at::Tensor& rows, int64_t first, at::Tensor& panels);
/// Writes one output from its blocks as they are in a GGUF file.
void pack_stored_row(const std::byte* row, int64_t in, int64_t output, WeightFormat format,
                     at::Tensor& panels);
/// The weights of outputs `ids`, one after the other: out [ids, in].
void unpack_block_rows(const at::Tensor& panels, WeightFormat format, std::span<const int64_t> ids,
                       float* out, int64_t in);

}  // namespace specdec
