#pragma once
#include <ATen/core/Tensor.h>

#include "core/kernels/kv_format.h"
#include "core/kv_store.h"

namespace specdec {

using at::Tensor;

/// How pages hold the numbers of heads.
struct PageForm {
  KvFormat format = KvFormat::kNative;
  KvRotation rotation = KvRotation::kNone;  ///< that the numbers in the pages have
  at::ScalarType dtype = at::kFloat;        ///< of the activations
};

/// Levels of kQ3 of a layer's heads, in the host's memory.
struct HeadLevels {
  const float* first = kNormalLevels;
  int64_t stride = 0;  ///< from a head's to the next one's

  const float* of(int64_t head) const { return first + head * stride; }
};
HeadLevels key_levels(const LayerKv& layer);
HeadLevels value_levels(const LayerKv& layer);

/// [kv_heads, tokens, head_dim] of the activations' dtype, of what pages hold: in the host's memory
/// unless these are the numbers themselves.
Tensor widened_numbers(const PageForm& form, const Tensor& stored, const HeadLevels& levels);
/// The same of keys [kv_heads, tokens, width] in whole groups (kv_key_group).
Tensor widened_key_groups(KvFormat format, const Tensor& stored);
/// What pages hold of numbers [kv_heads, tokens, head_dim] of the activations' dtype, in the host's
/// memory.
Tensor rounded_numbers(const PageForm& form, const Tensor& numbers, const HeadLevels& levels);
/// Keys [kv_heads, tokens, head_dim] with zeros in place of tokens that another cache holds no more
/// (NaN throughout), which no query sees: a group that they belong to is rounded with others.
Tensor present_keys(const Tensor& keys);

}  // namespace specdec
