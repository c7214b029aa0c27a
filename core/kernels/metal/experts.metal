// Mixtures of experts: the router's choice, products of tokens with their experts' matrices, and
// the weighted sum of their outputs.
#include "core/kernels/metal/row_product.metalh"

using namespace specdec;

namespace {

/// Whether an expert goes before another: the likelier, the lower number on a tie.
inline bool goes_before(float logit, int32_t expert, float other_logit, int32_t other) {
  return logit > other_logit || (logit == other_logit && expert < other);
}

/// The first of the experts that come after `last`, -1 = none does. NaN goes last.
inline int32_t next_expert(const device float* logits, int32_t count, int32_t last,
                           float last_logit) {
  int32_t best = -1;
  float best_logit = 0.0F;
  for (int32_t expert = 0; expert < count; ++expert) {
    const float number = logits[expert];
    const float logit = number == number ? number : portable::minus_infinity();
    if ((last < 0 || goes_before(last_logit, last, logit, expert)) &&
        (best < 0 || goes_before(logit, expert, best_logit, best))) {
      best = expert;
      best_logit = logit;
    }
  }
  return best;
}

}  // namespace

/// A thread takes a row, in a group of its own. The softmax's denominator cancels out.
kernel void route(const device float* logits [[buffer(0)]],
                  const device float* output_scale [[buffer(1)]],
                  device int32_t* experts [[buffer(2)]], device float* weights [[buffer(3)]],
                  constant mps::RouteSizes& sizes [[buffer(4)]],
                  uint3 group [[threadgroup_position_in_grid]],
                  uint3 local [[thread_position_in_threadgroup]]) {
  if (local.x != 0) {
    return;
  }
  const device float* row = logits + static_cast<int64_t>(group.x) * sizes.count;
  const int64_t first = static_cast<int64_t>(group.x) * sizes.chosen;
  int32_t expert = -1;
  float logit = 0.0F;
  float total = 0.0F;
  for (int32_t rank = 0; rank < sizes.chosen; ++rank) {
    expert = next_expert(row, sizes.count, expert, logit);
    logit = row[expert] == row[expert] ? row[expert] : portable::minus_infinity();
    const float largest = row[rank == 0 ? expert : experts[first]];
    const float weight = portable::exponential(row[expert] - largest);
    experts[first + rank] = expert;
    weights[first + rank] = weight;
    total += weight;
  }
  for (int32_t rank = 0; rank < sizes.chosen; ++rank) {
    weights[first + rank] = weights[first + rank] / total * output_scale[experts[first + rank]];
  }
}

/// Grid (groups of outputs, pairs of a token and an expert): out[pair] = weight(expert) * its row.
#define EXPERT_KERNEL(name, Weights)                                                             \
  kernel void name(                                                                              \
      const device uchar* weight [[buffer(0)]], const device int32_t* experts [[buffer(1)]],     \
      const device float* input [[buffer(2)]], device float* out [[buffer(3)]],                  \
      constant mps::ExpertSizes& sizes [[buffer(4)]], threadgroup float* scratch GROUP_MEMORY,   \
      uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],     \
      uint simd_group [[simdgroup_index_in_threadgroup]]) {                                      \
    const mps::ThreadPlace place = mps::place_of(lane, simd_group);                              \
    const int32_t first = static_cast<int32_t>(group.x) * mps::kProductOutputs;                  \
    const int32_t pair = static_cast<int32_t>(group.y);                                          \
    const int32_t expert = experts[pair];                                                        \
    if (expert < 0 || expert >= sizes.count) {                                                   \
      return;                                                                                    \
    }                                                                                            \
    const mps::Tile tile = {sizes.in, sizes.outputs - first, 1, sizes.codebook.numbers};         \
    const int64_t row = static_cast<int64_t>(expert) * sizes.outputs + first;                    \
    const float sum = mps::row_product<mps::Weights, 1>(                                         \
        weight + row * mps::row_bytes<mps::Weights>(sizes.in),                                   \
        input + static_cast<int64_t>(pair / sizes.rows_share) * sizes.in, tile, place, scratch); \
    if (place.index < mps::kProductOutputs && first + place.index < sizes.outputs) {             \
      out[static_cast<int64_t>(pair) * sizes.outputs + first + place.index] = sum;               \
    }                                                                                            \
  }

EXPERT_KERNEL(expert_linear_float32, Float32Weights)
EXPERT_KERNEL(expert_linear_bfloat16, BFloat16Weights)
EXPERT_KERNEL(expert_linear_float16, Float16Weights)
EXPERT_KERNEL(expert_linear_q8_0, Q80Weights)
EXPERT_KERNEL(expert_linear_q4_0, Q40Weights)
EXPERT_KERNEL(expert_linear_q4_1, Q41Weights)
EXPERT_KERNEL(expert_linear_q5_0, Q50Weights)
EXPERT_KERNEL(expert_linear_q5_1, Q51Weights)
EXPERT_KERNEL(expert_linear_q2_k, Q2KWeights)
EXPERT_KERNEL(expert_linear_q3_k, Q3KWeights)
EXPERT_KERNEL(expert_linear_q4_k, Q4KWeights)
EXPERT_KERNEL(expert_linear_q5_k, Q5KWeights)
EXPERT_KERNEL(expert_linear_q6_k, Q6KWeights)
EXPERT_KERNEL(expert_linear_fp8_128, Fp8x128Weights)
EXPERT_KERNEL(expert_linear_fp8_32, Fp8x32Weights)
EXPERT_KERNEL(expert_linear_int4_128, Int4x128Weights)
EXPERT_KERNEL(expert_linear_int4_32, Int4x32Weights)
EXPERT_KERNEL(expert_linear_affine8_64, Affine8x64Weights)
EXPERT_KERNEL(expert_linear_affine4_32, Affine4x32Weights)
EXPERT_KERNEL(expert_linear_codebook_16, Codebook16Weights)
EXPERT_KERNEL(expert_linear_codebook_32, Codebook32Weights)

/// out = the sum over ranks, in their order, of weights * outputs.
kernel void expert_sum(const device float* outputs [[buffer(0)]],
                       const device float* weights [[buffer(1)]], device float* out [[buffer(2)]],
                       constant mps::ExpertSumSizes& sizes [[buffer(3)]],
                       uint3 group [[threadgroup_position_in_grid]],
                       uint3 local [[thread_position_in_threadgroup]]) {
  const int64_t i = static_cast<int64_t>(group.x) * mps::kElementThreads + local.x;
  if (i >= static_cast<int64_t>(sizes.rows) * sizes.size) {
    return;
  }
  const int64_t first = i / sizes.size * sizes.chosen;
  float sum = 0.0F;
  for (int32_t rank = 0; rank < sizes.chosen; ++rank) {
    sum = portable::fused(weights[first + rank],
                          outputs[(first + rank) * sizes.size + i % sizes.size], sum);
  }
  out[i] = sum;
}
