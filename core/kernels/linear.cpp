#include "core/kernels/linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/kernels/block_formats.h"
#include "core/kernels/linear_rows.h"
#include "core/kernels/weight_fragments.h"

namespace specdec {

WeightFormat weight_format(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return WeightFormat::kFloat64;
    case at::kFloat:
      return WeightFormat::kFloat32;
    case at::kBFloat16:
      return WeightFormat::kBFloat16;
    case at::kHalf:
      return WeightFormat::kFloat16;
    case at::kChar:
      return WeightFormat::kInt8;
    default:
      SPECDEC_CHECK(false, "weight_format: dtype {}", c10::toString(dtype));
  }
}

at::ScalarType scalar_type(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat64:
      return at::kDouble;
    case WeightFormat::kFloat32:
      return at::kFloat;
    case WeightFormat::kBFloat16:
      return at::kBFloat16;
    case WeightFormat::kFloat16:
      return at::kHalf;
    case WeightFormat::kInt8:
      return at::kChar;
    default:
      break;
  }
  SPECDEC_CHECK(false, "scalar_type: {} has none", format_name(format));
}

const char* format_name(WeightFormat format) {
  constexpr const char* kNames[] = {
      "float64",  "float32", "bfloat16",   "float16",   "int8",    "Q4_0",   "Q4_1",    "Q5_0",
      "Q5_1",     "Q2_K",    "Q3_K",       "Q4_K",      "Q5_K",    "Q6_K",   "FP8_128", "FP8_32",
      "INT4_128", "INT4_32", "IQ1_S",      "IQ1_M",     "IQ2_XXS", "IQ2_XS", "IQ2_S",   "IQ3_XXS",
      "IQ3_S",    "IQ4_NL",  "IQ4_XS",     "TQ1_0",     "TQ2_0",   "MXFP4",  "NVFP4",   "FP4_16",
      "FP4_32",   "NF4_32",  "AFFINE8_64", "AFFINE4_32"};
  return kNames[static_cast<size_t>(format)];
}

bool LinearForm::in_fragments(WeightFormat format) const {
  return layout == WeightLayout::kRows && is_arranged && has_fragments(format);
}

int64_t packed_bytes(const LinearPart& part, int64_t in, const LinearForm& form) {
  if (form.layout == WeightLayout::kRows) {
    return form.in_fragments(part.format) ? fragment_bytes(part.out, in, part.format)
                                          : weight_row_bytes(in, part.format) * part.out;
  }
  const int64_t panels = (part.out + kPanel - 1) / kPanel;
  if (!is_in_blocks(part.format)) {
    return panels * kPanel * in * static_cast<int64_t>(c10::elementSize(scalar_type(part.format)));
  }
  return with_block_type(part.format, [&]<class Block>(Block* /*type*/) {
    return panels * ((in + Block::kInputs - 1) / Block::kInputs) *
           static_cast<int64_t>(sizeof(Block));
  });
}

/// Bytes of a part, with the padding that aligns the next one.
static int64_t aligned_bytes(const LinearPart& part, int64_t in, const LinearForm& form) {
  return (packed_bytes(part, in, form) + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

int64_t stored_bytes(const std::vector<LinearPart>& parts, int64_t in, const LinearForm& form) {
  int64_t bytes = 0;
  for (const LinearPart& part : parts) {
    bytes += aligned_bytes(part, in, form);
  }
  return bytes;
}

/// What a part of a form holds, in memory of a device.
static Tensor packed_in(const std::shared_ptr<std::byte>& memory, const LinearPart& part,
                        int64_t in, const LinearForm& form, at::Device device) {
  if (form.layout == WeightLayout::kPanels) {
    return panels_in(memory, part.out, in, part.format);
  }
  if (!form.in_fragments(part.format)) {
    return weight_rows_in(memory, part.out, in, part.format, device);
  }
  return at::from_blob(
      memory.get(), {packed_bytes(part, in, form)}, [memory](void* /*data*/) {},
      at::TensorOptions(at::kByte).device(device));
}

Linear::Linear(int64_t out, int64_t in, WeightFormat format, const Placement& place)
    : Linear(std::vector<LinearPart>{{out, format}}, in, place) {}

Linear::Linear(const std::vector<LinearPart>& parts, int64_t in, const Placement& place)
    : in_(in), layout_(place.layout) {
  for (const auto& [out, format] : parts) {
    SPECDEC_CHECK(in > 0 && out > 0, "Linear: {} outputs of {} inputs", out, in);
    Part part{.first = out_, .out = out, .format = format, .packed = {}};
    part.packed = layout_ == WeightLayout::kPanels
                      ? empty_panels(out, in, format)
                      : empty_weight_rows(out, in, format, place.device);
    parts_.push_back(std::move(part));
    out_ += out;
  }
}

Linear::Linear(const std::vector<LinearPart>& parts, int64_t in, const LinearForm& form,
               at::Device device, std::shared_ptr<std::byte> memory)
    : in_(in), layout_(form.layout) {
  for (const LinearPart& each : parts) {
    parts_.push_back({.first = out_,
                      .out = each.out,
                      .format = each.format,
                      .packed = packed_in(memory, each, in, form, device),
                      .in_fragments = form.in_fragments(each.format)});
    memory = {memory, memory.get() + aligned_bytes(each, in, form)};
    out_ += each.out;
  }
}

Linear::Linear(const Tensor& weight, WeightFormat format, const Tensor& bias,
               std::optional<Placement> place)
    : Linear(weight.size(0), weight.size(1), format,
             place.value_or(placement_on(weight.device()))) {
  set_rows(0, weight);
  if (bias.defined()) {
    set_bias(bias);
  }
}

const Linear::Part& Linear::part_of(int64_t output) const {
  SPECDEC_CHECK(output >= 0 && output < out_, "Linear [{}, {}]: row {}", out_, in_, output);
  return *std::find_if(parts_.begin(), parts_.end(),
                       [&](const Part& part) { return output < part.first + part.out; });
}

Linear::Part& Linear::part_of(int64_t output, int64_t rows) {
  const Part& part = std::as_const(*this).part_of(output);
  SPECDEC_CHECK(!part.in_fragments, "Linear [{}, {}]: is arranged already", out_, in_);
  SPECDEC_CHECK(output + rows <= part.first + part.out, "Linear [{}, {}]: {} rows from {} on", out_,
                in_, rows, output);
  return parts_[static_cast<size_t>(&part - parts_.data())];
}

WeightFormat Linear::format(int64_t output) const { return part_of(output).format; }

bool Linear::has_integer_blocks() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return specdec::has_integer_blocks(part.format); });
}

at::Device Linear::device() const { return parts_.front().packed.device(); }

int64_t Linear::bytes() const {
  size_t bytes = 0;
  for (const Part& part : parts_) {
    bytes += part.packed.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

void Linear::set_activations(ActivationFormat activations) {
  SPECDEC_CHECK(activations == ActivationFormat::kFloat32 || has_integer_blocks(),
                "Linear: int8 activations with weights that are not in blocks of integers");
  activations_ = activations;
}

void Linear::set_bias(const Tensor& bias) {
  SPECDEC_CHECK(bias.dim() == 1 && bias.size(0) == out_, "Linear: a bias for {} outputs", out_);
  bias_ = bias.to(device(), compute_dtype()).contiguous();
}

void Linear::arrange() {
  for (Part& part : parts_) {
    const bool takes = takes_fragments({part.packed.device(), layout_});
    if (takes && !part.in_fragments && has_fragments(part.format)) {
      part.packed = pack_fragments(part.packed, part.format);
      part.in_fragments = true;
    }
  }
}

void Linear::set_stored_row(int64_t output, const std::byte* blocks) {
  Part& part = part_of(output, 1);
  if (layout_ == WeightLayout::kRows) {
    return write_stored_row(blocks, in_, output - part.first, part.format, part.packed);
  }
  pack_stored_row(blocks, in_, output - part.first, part.format, part.packed);
}

void Linear::set_rows(int64_t first, const Tensor& weight) {
  SPECDEC_CHECK(weight.dim() == 2 && weight.size(1) == in_, "Linear [{}, {}]: rows from {} on",
                out_, in_, first);
  Part& part = part_of(first, weight.size(0));
  if (layout_ == WeightLayout::kRows) {
    return write_weight_rows(weight, first - part.first, part.format, part.packed);
  }
  pack_rows(weight, first - part.first, part.format, part.packed);
}

at::ScalarType Linear::compute_dtype() const {
  return format() == WeightFormat::kFloat64 ? at::kDouble : at::kFloat;
}

Tensor Linear::unpack() const {
  if (parts_.size() == 1 && !is_in_blocks(format())) {
    return linear_rows(*this, at::arange(out_)).to(scalar_type(format()));
  }
  std::vector<Tensor> all;
  for (const Part& part : parts_) {
    all.push_back(linear_rows(*this, part, at::arange(part.out)));
  }
  return at::cat(all);
}

void join_rows(std::vector<Linear>& matrices) {
  if (matrices.empty() || matrices.front().layout() != WeightLayout::kRows) {
    return;
  }
  const Linear::Part& first = matrices.front().parts_.front();
  const int64_t count = std::ssize(matrices);
  std::vector<int64_t> sizes = first.packed.sizes().vec();
  sizes.insert(sizes.begin(), count);
  const Tensor all = at::empty(sizes, first.packed.options());
  for (int64_t i = 0; i < count; ++i) {
    std::vector<Linear::Part>& parts = matrices[static_cast<size_t>(i)].parts_;
    SPECDEC_CHECK(parts.size() == 1 && parts.front().in_fragments == first.in_fragments &&
                      parts.front().packed.sizes() == all[i].sizes() &&
                      parts.front().format == first.format,
                  "join_rows: matrix {} is of another kind than the first", i);
    all[i].copy_(parts.front().packed);
    parts.front().packed = all[i];
  }
}

}  // namespace specdec
