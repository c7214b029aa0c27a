#pragma once
#include "core/kernels/cuda/kernels.h"

namespace specdec::cuda {

/// A matrix as rows of bfloat16 numbers: each weight as specdec_cuda_embed_fragments has it,
/// rounded.
struct UnpackFragmentsTask {
  const void* fragments;  ///< as TensorLinearTask's
  uint16_t* out;          ///< [outputs, in]
  int32_t outputs, in;
  WeightFormat format;
};

extern "C" int specdec_cuda_unpack_fragments(const UnpackFragmentsTask* task, void* stream);

}  // namespace specdec::cuda
