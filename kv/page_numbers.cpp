#include "kv/page_numbers.h"

#include <ATen/ATen.h>

#include "core/kernels/hadamard.h"
#include "core/kernels/key_groups.h"

namespace specdec {

HeadLevels key_levels(const LayerKv& layer) {
  return layer.levels.defined() ? HeadLevels{layer.levels.const_data_ptr<float>(), kQ3Levels}
                                : HeadLevels{};
}

HeadLevels value_levels(const LayerKv& layer) {
  const HeadLevels keys = key_levels(layer);
  return {keys.of(layer.kv_heads), keys.stride};
}

Tensor widened_numbers(const PageForm& form, const Tensor& stored, const HeadLevels& levels) {
  const bool rotated = form.rotation == KvRotation::kHadamard;
  if (stored.scalar_type() != at::kByte && !rotated) {
    return stored.to(form.dtype);
  }
  const Tensor elements = stored.cpu();
  const int64_t head_dim = kv_head_dim(form.format, stored.size(2));
  Tensor numbers = at::empty({stored.size(0), stored.size(1), head_dim}, at::kFloat);
  const auto bytes = static_cast<int64_t>(stored.element_size()) * stored.size(2);
  auto* from = static_cast<char*>(elements.mutable_data_ptr());
  auto* to = numbers.mutable_data_ptr<float>();
  for (int64_t i = 0; i < stored.size(0) * stored.size(1); ++i, from += bytes, to += head_dim) {
    decode_kv(form.format, {from, 1, levels.of(i / stored.size(1))}, head_dim, to);
    if (rotated) {
      hadamard(to, head_dim);
    }
  }
  return numbers;
}

Tensor widened_key_groups(KvFormat format, const Tensor& stored) {
  const int64_t width = stored.size(2);
  const int64_t head_dim = kv_head_dim(format, width);
  const Tensor numbers = at::empty({stored.size(0), stored.size(1), head_dim}, at::kFloat);
  const Tensor bytes = stored.cpu();
  auto* group = bytes.mutable_data_ptr<uint8_t>();
  auto* to = numbers.mutable_data_ptr<float>();
  for (int64_t i = 0; i < stored.size(0) * stored.size(1); ++i, to += head_dim) {
    const int64_t token = i % kKeyGroup;
    decode_key_of_group(format, {group + (i - token) * width, 1, width}, token, head_dim, to);
  }
  return numbers;
}

Tensor rounded_numbers(const PageForm& form, const Tensor& numbers, const HeadLevels& levels) {
  const at::ScalarType elements = kv_element_type(form.format, form.dtype);
  const bool rotated = form.rotation == KvRotation::kHadamard;
  if (form.format == KvFormat::kNative && !rotated) {
    return numbers.to(elements);
  }
  Tensor from = numbers.to(at::kCPU, at::kFloat).contiguous().clone();
  const int64_t head_dim = from.size(2);
  const int64_t width = kv_width(form.format, head_dim);
  const Tensor stored = at::empty({from.size(0), from.size(1), width}, elements);
  const auto bytes = static_cast<int64_t>(stored.element_size()) * width;
  auto* head = from.mutable_data_ptr<float>();
  auto* to = static_cast<char*>(stored.mutable_data_ptr());
  for (int64_t i = 0; i < from.size(0) * from.size(1); ++i, head += head_dim, to += bytes) {
    if (rotated) {
      hadamard(head, head_dim);
    }
    encode_kv(form.format, head, head_dim, {to, 1, levels.of(i / from.size(1))});
  }
  return stored;
}

Tensor present_keys(const Tensor& keys) {
  const Tensor missing = keys.isnan().all(2, /*keepdim=*/true).all(0, /*keepdim=*/true);
  return keys.masked_fill(missing, 0.0);
}

}  // namespace specdec
