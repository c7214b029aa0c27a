#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/device_sampler.h"
#include "core/kernels/cuda/sampling_kernels.h"

namespace specdec::cuda {

/// What the sampling kernels read of a draft of n nodes, on a device, in one piece of memory.
struct SamplerTables {
  at::Tensor memory;
  const int32_t* tokens = nullptr;      ///< [n]
  const int32_t* parents = nullptr;     ///< [n]
  const int32_t* drawn_from = nullptr;  ///< [n] Draft::child_probs
  const int32_t* chain = nullptr;       ///< [n] path of a whole chain
  const int32_t* nodes = nullptr;       ///< [1] n
  const int32_t* length = nullptr;      ///< [1] proposed tokens
  int32_t* choices = nullptr;     ///< [n] the first child's token, until the kernels write others
  const uint32_t* key = nullptr;  ///< [2] of the randomness
  const int64_t* positions = nullptr;  ///< [n] of the token after each node; [0] after the root
  RowMasks masks;
};

/// Copies the tables to a device at once.
SamplerTables upload_tables(const SampledDraft& sampled, at::Device device);

/// Masks of rows on a device, in one piece of memory.
struct UploadedMasks {
  at::Tensor memory;
  RowMasks masks;
};
UploadedMasks upload_masks(std::span<const NodeMask> masks, at::Device device);

/// Rows of logits as the kernels read them: row r begins at first[r * stride].
struct LogitRows {
  const float* first;
  int64_t stride;
};
/// `logits` [n, vocab]: rows one behind the other, or one row n times (at::Tensor::expand), which
/// has a stride of 0.
LogitRows logit_rows(const at::Tensor& logits);

/// The distributions of the rows of logits [n, vocab] of logit_rows, to `probs` [n, vocab]; without
/// masks, and nobody asks whether they are valid.
TargetProbsTask target_probs_task(const at::Tensor& logits, const SamplingParams& sampling,
                                  double* probs);

/// The distributions that a draft's children were drawn from, as the rows that rejection reads.
/// InternalError where one gives a drawn token no mass.
std::vector<TokenProbs> drafted_rows(const Draft& draft);
/// The rows that block verification of a chain reads, one for each drafted token; all mass is on a
/// token that was chosen deterministically. Empty where all were.
std::vector<TokenProbs> chain_rows(const Draft& chain, int64_t vocab);
/// Copies distributions over `vocab` tokens to a device, those of few tokens by their masses alone,
/// and those that lie there already not at all: [rows, vocab] float64.
at::Tensor upload_rows(const std::vector<TokenProbs>& rows, int64_t vocab, at::Device device);

}  // namespace specdec::cuda
