#pragma once
#include <cstdint>

/// The part of the kernels' C interface (kernels.h) that gathers rows.
namespace specdec::cuda {

/// Row i of out = row sources[i] of the input.
struct GatherRowsTask {
  const float* input;      ///< [any, columns]
  const int32_t* sources;  ///< [rows] rows of the input
  float* out;              ///< [rows, columns], elsewhere
  int32_t rows, columns;
};

extern "C" {
int specdec_cuda_gather_rows(const GatherRowsTask* task, void* stream);
}

}  // namespace specdec::cuda
