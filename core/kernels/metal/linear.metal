// Products of rows with a matrix, and rows of a table.
#include "core/kernels/metal/row_product.metalh"

using namespace specdec;

/// Grid (groups of outputs, groups of rows).
#define LINEAR_KERNEL(name, Weights, kRows)                                                    \
  kernel void name(                                                                            \
      const device uchar* weight [[buffer(0)]], const device float* bias [[buffer(1)]],        \
      const device float* input [[buffer(2)]], device float* out [[buffer(3)]],                \
      constant mps::LinearSizes& sizes [[buffer(4)]], threadgroup float* scratch GROUP_MEMORY, \
      uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],   \
      uint simd_group [[simdgroup_index_in_threadgroup]]) {                                    \
    const mps::ThreadPlace place = mps::place_of(lane, simd_group);                            \
    const int32_t first_output = static_cast<int32_t>(group.x) * mps::kProductOutputs;         \
    const int32_t first_row = static_cast<int32_t>(group.y) * kRows;                           \
    const mps::Tile tile = {sizes.in, sizes.outputs - first_output, sizes.rows - first_row,    \
                            sizes.codebook.numbers};                                           \
    const float sum = mps::row_product<mps::Weights, kRows>(                                   \
        weight + first_output * mps::row_bytes<mps::Weights>(sizes.in),                        \
        input + static_cast<int64_t>(first_row) * sizes.in, tile, place, scratch);             \
    const int32_t row = first_row + place.index / mps::kProductOutputs;                        \
    const int32_t output = first_output + place.index % mps::kProductOutputs;                  \
    if (place.index < kRows * mps::kProductOutputs && row < sizes.rows &&                      \
        output < sizes.outputs) {                                                              \
      out[static_cast<int64_t>(row) * sizes.out_stride + output] =                             \
          sizes.biased != 0 ? sum + bias[output] : sum;                                        \
    }                                                                                          \
  }

/// A group reads a row.
#define EMBED_KERNEL(name, Weights)                                                            \
  kernel void name(const device uchar* weight [[buffer(0)]],                                   \
                   const device int32_t* ids [[buffer(1)]], device float* out [[buffer(2)]],   \
                   constant mps::EmbedSizes& sizes [[buffer(3)]],                              \
                   uint3 group [[threadgroup_position_in_grid]],                               \
                   uint3 local [[thread_position_in_threadgroup]]) {                           \
    const device uchar* row = weight + ids[group.x] * mps::row_bytes<mps::Weights>(sizes.in);  \
    const int64_t first = static_cast<int64_t>(group.x) * sizes.in;                            \
    for (int32_t k = static_cast<int32_t>(local.x); k < sizes.in; k += mps::kProductThreads) { \
      out[first + k] =                                                                         \
          mps::weight_at<mps::Weights>(row, k, sizes.codebook.numbers) * sizes.factor;         \
    }                                                                                          \
  }

LINEAR_KERNEL(linear_one_float32, Float32Weights, 1)
LINEAR_KERNEL(linear_float32, Float32Weights, mps::kProductRows)
EMBED_KERNEL(embed_float32, Float32Weights)
LINEAR_KERNEL(linear_one_bfloat16, BFloat16Weights, 1)
LINEAR_KERNEL(linear_bfloat16, BFloat16Weights, mps::kProductRows)
EMBED_KERNEL(embed_bfloat16, BFloat16Weights)
LINEAR_KERNEL(linear_one_float16, Float16Weights, 1)
LINEAR_KERNEL(linear_float16, Float16Weights, mps::kProductRows)
EMBED_KERNEL(embed_float16, Float16Weights)
LINEAR_KERNEL(linear_one_q8_0, Q80Weights, 1)
LINEAR_KERNEL(linear_q8_0, Q80Weights, mps::kProductRows)
EMBED_KERNEL(embed_q8_0, Q80Weights)
LINEAR_KERNEL(linear_one_q4_0, Q40Weights, 1)
LINEAR_KERNEL(linear_q4_0, Q40Weights, mps::kProductRows)
EMBED_KERNEL(embed_q4_0, Q40Weights)
LINEAR_KERNEL(linear_one_q4_1, Q41Weights, 1)
LINEAR_KERNEL(linear_q4_1, Q41Weights, mps::kProductRows)
EMBED_KERNEL(embed_q4_1, Q41Weights)
LINEAR_KERNEL(linear_one_q5_0, Q50Weights, 1)
LINEAR_KERNEL(linear_q5_0, Q50Weights, mps::kProductRows)
EMBED_KERNEL(embed_q5_0, Q50Weights)
LINEAR_KERNEL(linear_one_q5_1, Q51Weights, 1)
LINEAR_KERNEL(linear_q5_1, Q51Weights, mps::kProductRows)
EMBED_KERNEL(embed_q5_1, Q51Weights)
LINEAR_KERNEL(linear_one_q2_k, Q2KWeights, 1)
LINEAR_KERNEL(linear_q2_k, Q2KWeights, mps::kProductRows)
EMBED_KERNEL(embed_q2_k, Q2KWeights)
LINEAR_KERNEL(linear_one_q3_k, Q3KWeights, 1)
LINEAR_KERNEL(linear_q3_k, Q3KWeights, mps::kProductRows)
EMBED_KERNEL(embed_q3_k, Q3KWeights)
LINEAR_KERNEL(linear_one_q4_k, Q4KWeights, 1)
LINEAR_KERNEL(linear_q4_k, Q4KWeights, mps::kProductRows)
EMBED_KERNEL(embed_q4_k, Q4KWeights)
LINEAR_KERNEL(linear_one_q5_k, Q5KWeights, 1)
LINEAR_KERNEL(linear_q5_k, Q5KWeights, mps::kProductRows)
EMBED_KERNEL(embed_q5_k, Q5KWeights)
LINEAR_KERNEL(linear_one_q6_k, Q6KWeights, 1)
LINEAR_KERNEL(linear_q6_k, Q6KWeights, mps::kProductRows)
EMBED_KERNEL(embed_q6_k, Q6KWeights)
LINEAR_KERNEL(linear_one_fp8_128, Fp8x128Weights, 1)
LINEAR_KERNEL(linear_fp8_128, Fp8x128Weights, mps::kProductRows)
EMBED_KERNEL(embed_fp8_128, Fp8x128Weights)
LINEAR_KERNEL(linear_one_fp8_32, Fp8x32Weights, 1)
LINEAR_KERNEL(linear_fp8_32, Fp8x32Weights, mps::kProductRows)
EMBED_KERNEL(embed_fp8_32, Fp8x32Weights)
LINEAR_KERNEL(linear_one_int4_128, Int4x128Weights, 1)
LINEAR_KERNEL(linear_int4_128, Int4x128Weights, mps::kProductRows)
EMBED_KERNEL(embed_int4_128, Int4x128Weights)
LINEAR_KERNEL(linear_one_int4_32, Int4x32Weights, 1)
LINEAR_KERNEL(linear_int4_32, Int4x32Weights, mps::kProductRows)
EMBED_KERNEL(embed_int4_32, Int4x32Weights)
LINEAR_KERNEL(linear_one_affine8_64, Affine8x64Weights, 1)
LINEAR_KERNEL(linear_affine8_64, Affine8x64Weights, mps::kProductRows)
EMBED_KERNEL(embed_affine8_64, Affine8x64Weights)
LINEAR_KERNEL(linear_one_affine4_32, Affine4x32Weights, 1)
LINEAR_KERNEL(linear_affine4_32, Affine4x32Weights, mps::kProductRows)
EMBED_KERNEL(embed_affine4_32, Affine4x32Weights)
LINEAR_KERNEL(linear_one_codebook_16, Codebook16Weights, 1)
LINEAR_KERNEL(linear_codebook_16, Codebook16Weights, mps::kProductRows)
EMBED_KERNEL(embed_codebook_16, Codebook16Weights)
LINEAR_KERNEL(linear_one_codebook_32, Codebook32Weights, 1)
LINEAR_KERNEL(linear_codebook_32, Codebook32Weights, mps::kProductRows)
EMBED_KERNEL(embed_codebook_32, Codebook32Weights)
