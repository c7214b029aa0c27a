#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/kernels/panels.h"
#include "core/kernels/weight_rows.h"

namespace specdec {

using at::Tensor;

/// The format of weights of a dtype: float64, float32, bfloat16, float16 keep their values, int8
/// (kChar) stands for kInt8.
WeightFormat weight_format(at::ScalarType dtype);
/// The dtype of weights of a format: the inverse of weight_format.
at::ScalarType scalar_type(WeightFormat format);
/// Name of a format: "float32", "int8", "Q4_1", ...
const char* format_name(WeightFormat format);

/// Outputs of a Linear that have a format of their own.
struct LinearPart {
  int64_t out;
  WeightFormat format;
};

/// How the weights of a Linear's parts lie in memory.
struct LinearForm {
  WeightLayout layout = WeightLayout::kPanels;
  bool is_arranged = false;  ///< as Linear::arrange does

  /// Whether a part lies in fragments (weight_fragments.h).
  bool in_fragments(WeightFormat format) const;
};

/// Memory that a part takes.
int64_t packed_bytes(const LinearPart& part, int64_t in, const LinearForm& form = {});

/// Bytes of a matrix whose parts lie one after another, each aligned to kPartAlignment.
inline constexpr int64_t kPartAlignment = 64;
int64_t stored_bytes(const std::vector<LinearPart>& parts, int64_t in, const LinearForm& form);

/// A linear layer as data: the weight [out, in], laid out for the products of its device
/// (WeightLayout; on the CPU linear_product.h), and its bias. Immutable once it is filled; copies
/// share the memory. Matrices that a file stores in several formats may be one Linear: its parts
/// follow one another.
class Linear {
 public:
  /// No matrix.
  Linear() = default;
  /// Packs weight [out, in] of any floating dtype, converted to `format`; by default for
  /// the weight's device.
  Linear(const Tensor& weight, WeightFormat format, const Tensor& bias = {},
         std::optional<Placement> place = {});
  /// Zeros, to be filled by set_rows while weights are loaded.
  Linear(int64_t out, int64_t in, WeightFormat format, const Placement& place);
  Linear(const std::vector<LinearPart>& parts, int64_t in, const Placement& place);
  /// Over memory of a device that holds its parts (stored_bytes), or will hold them before each
  /// product; it shares that memory.
  Linear(const std::vector<LinearPart>& parts, int64_t in, const LinearForm& form,
         at::Device device, std::shared_ptr<std::byte> memory);

  /// What inputs are rounded to before they are multiplied; int8 takes weights in blocks of
  /// integers, and other parts keep float32.
  void set_activations(ActivationFormat activations);
  /// Packs weight [rows, in] as outputs first .. first + rows - 1, all of one part.
  void set_rows(int64_t first, const Tensor& weight);
  /// Writes one output from its blocks as they are stored.
  void set_stored_row(int64_t output, const std::byte* blocks);
  /// bias [out], of any floating dtype.
  void set_bias(const Tensor& bias);
  /// Rearranges a filled matrix of the layout kRows for tensor cores, in formats that they multiply
  /// with (weight_fragments.h). No rows can be set after it.
  void arrange();

  bool defined() const { return !parts_.empty(); }
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  /// Format of the part that holds an output.
  WeightFormat format(int64_t output = 0) const;
  /// Whether a part is in blocks of integers.
  bool has_integer_blocks() const;
  ActivationFormat activations() const { return activations_; }
  /// Dtype of inputs and outputs: float64 for float64 weights, else float32.
  at::ScalarType compute_dtype() const;
  at::Device device() const;
  WeightLayout layout() const { return layout_; }
  /// Memory of the packed weight.
  int64_t bytes() const;

  /// Outputs of one format, as they lie in memory.
  struct Part {
    int64_t first, out;
    WeightFormat format;
    Tensor packed;              ///< kPanels: see empty_panels; kRows: see empty_weight_rows
    bool in_fragments = false;  ///< packed: see pack_fragments
  };
  const std::vector<Part>& parts() const { return parts_; }
  const Tensor& bias() const { return bias_; }  ///< [out] of compute_dtype, or undefined

  /// The weight [out, in] as it is multiplied, in the format's dtype (int8: float32).
  Tensor unpack() const;

 private:
  friend void join_rows(std::vector<Linear>& matrices);
  const Part& part_of(int64_t output) const;
  Part& part_of(int64_t output, int64_t rows);

  int64_t in_ = 0;
  int64_t out_ = 0;
  ActivationFormat activations_ = ActivationFormat::kFloat32;
  WeightLayout layout_ = WeightLayout::kPanels;
  std::vector<Part> parts_;
  Tensor bias_;
};

/// Moves matrices of one shape and format, in the layout kRows, to one piece of memory, in which
/// they follow one another: a device addresses an expert by its number. Nothing for other layouts.
void join_rows(std::vector<Linear>& matrices);

}  // namespace specdec
