#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/kernels/panels.h"

namespace specdec {

/// How the weights of a Linear follow one another in memory.
enum class WeightLayout {
  kPanels,  ///< panels of 32 outputs, for the CPU's products (core/kernels/panels.h)
  kRows     ///< output after output, for those of other devices; see below
};

/// Where the numbers of a model lie, and how its matrices are laid out there.
struct Placement {
  at::Device device = at::kCPU;
  WeightLayout layout = WeightLayout::kPanels;
};

/// The placement whose layout the products of a device read.
Placement placement_on(at::Device device);

// The layout kRows: a tensor [out, in] of the format's dtype; in blocks, [out, bytes of one row].
// Blocks lie as in a GGUF file or as core/formats/quantised/scaled_blocks.h says; those with a
// codebook, of whatever type, as FP4_16 or FP4_32 (core/formats/quantised/codebook_blocks.h), with
// the type's own numbers.

/// Bytes of one output.
int64_t weight_row_bytes(int64_t in, WeightFormat format);
/// Zeros for a weight. Throws Error where `in` is not a multiple of the format's block.
at::Tensor empty_weight_rows(int64_t out, int64_t in, WeightFormat format, at::Device device);
/// The rows of a weight over memory of the device that holds them, which the tensor shares.
at::Tensor weight_rows_in(const std::shared_ptr<std::byte>& memory, int64_t out, int64_t in,
                          WeightFormat format, at::Device device);
/// Writes rows [n, in], of any floating dtype, as outputs first .. first + n - 1, converted to the
/// format as pack_rows of panels.h does.
void write_weight_rows(const at::Tensor& rows, int64_t first, WeightFormat format,
                       at::Tensor& weight);
/// Writes one output of `in` weights from its blocks as they are in a file (or scaled_blocks.h,
/// codebook_blocks.h).
void write_stored_row(const std::byte* blocks, int64_t in, int64_t output, WeightFormat format,
                      at::Tensor& weight);
/// The weights of outputs ids [n] int64 on the weight's device, widened: [n, in] float32 (float64
/// for kFloat64) there.
at::Tensor read_weight_rows(const at::Tensor& weight, WeightFormat format, const at::Tensor& ids,
                            int64_t in);

}  // namespace specdec
