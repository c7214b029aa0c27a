#pragma once
// Weights that are numbers of a table of 16 times a scale, as rows of a GPU hold all formats of
// core/formats/codebook_blocks.h: its blocks FP4_16 and FP4_32, with the table of the format.
#include <cuda_launch.h>

#include "core/kernels/cuda/kernels.h"
#include "core/kernels/device/stored_block.h"

namespace specdec::cuda {

enum class CodebookTable : int32_t {
  kIq1,
  kIq2,
  kIq3Xxs,
  kIq3S,
  kIq4,
  kTernary,
  kDoubledFp4,
  kFp4,
  kNf4
};

/// The tables that codebook_of() gives, in memory of the device: neighbouring lanes read any number
/// of one at once.
__device__ const float kCodebookNumbers[][16] = {
    {-1.125F, -0.875F, -0.125F, 0.125F, 0.875F, 1.125F},
    {8, 25, 43, 0, -8, -25, -43},
    {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62},
    {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15},
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
    {-1, 0, 1, 2},
    {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
    {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6},
    {-1.0F, -0.6961928009986877F, -0.5250730514526367F, -0.39491748809814453F,
     -0.28444138169288635F, -0.18477343022823334F, -0.09105003625154495F, 0.0F,
     0.07958029955625534F, 0.16093020141124725F, 0.24611230194568634F, 0.33791524171829224F,
     0.44070982933044434F, 0.5626170039176941F, 0.7229568362236023F, 1.0F}};

/// Blocks of FP4_16 or FP4_32. The table is chosen at run time: there are few kernels for many.
template <int kInputs>
struct CodebookWeights {
  static constexpr int kBlock = kInputs;
  static constexpr int kBytes = 4 + kInputs / 2;
  CodebookTable table;

  __device__ float at(const unsigned char* row, int k) const {
    return device::codebook_weight<kBlock>(row + static_cast<int64_t>(k / kBlock) * kBytes,
                                           k % kBlock, numbers());
  }
  __device__ void eight(const unsigned char* row, int k, float* out) const {
    const unsigned char* block = row + static_cast<int64_t>(k / kBlock) * kBytes;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out[i] = device::codebook_weight<kBlock>(block, k % kBlock + i, numbers());
    }
  }

 private:
  __device__ const float* numbers() const { return kCodebookNumbers[static_cast<int>(table)]; }
};

/// Of a format with a codebook.
struct CodebookFormat {
  CodebookTable table;
  int32_t scale_inputs;
};

/// Of all of them, from CudaWeights::kIq1S on.
constexpr CodebookFormat kCodebookFormats[] = {
    {CodebookTable::kIq1, 32},        {CodebookTable::kIq1, 16},
    {CodebookTable::kIq2, 32},        {CodebookTable::kIq2, 16},
    {CodebookTable::kIq2, 16},        {CodebookTable::kIq3Xxs, 32},
    {CodebookTable::kIq3S, 32},       {CodebookTable::kIq4, 32},
    {CodebookTable::kIq4, 32},        {CodebookTable::kTernary, 32},
    {CodebookTable::kTernary, 32},    {CodebookTable::kDoubledFp4, 32},
    {CodebookTable::kDoubledFp4, 16}, {CodebookTable::kFp4, 16},
    {CodebookTable::kFp4, 32},        {CodebookTable::kNf4, 32}};

/// Calls use(weights) with the reader of a format with a codebook; kInvalidValue for others.
template <class Use>
int with_codebook(CudaWeights format, const Use& use) {
  const int index = static_cast<int>(format) - static_cast<int>(CudaWeights::kIq1S);
  if (index < 0 || format > CudaWeights::kNf4x32) {
    return kInvalidValue;
  }
  const CodebookFormat& found = kCodebookFormats[index];
  return found.scale_inputs == 16 ? use(CodebookWeights<16>{found.table})
                                  : use(CodebookWeights<32>{found.table});
}

}  // namespace specdec::cuda
