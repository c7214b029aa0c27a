#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "core/kernels/kv_format.h"

namespace specdec {

/// The numbers of groups [..., n] rounded to codes between their least and largest number, as KIVI
/// says (Liu et al., 2024, arXiv:2402.02750), with that number and the step in float16: float32,
/// NaN where one of the group is not finite.
inline at::Tensor ranged_reference(KvFormat format, const at::Tensor& groups) {
  const double top = format == KvFormat::kKivi2 ? 3 : 15;
  const auto half = [](const at::Tensor& numbers) {
    return numbers.to(at::kFloat).to(at::kHalf).to(at::kDouble);
  };
  const at::Tensor exact = groups.to(at::kDouble);
  const at::Tensor least = half(exact.amin(-1, true));
  const at::Tensor step =
      half((groups.amax(-1, true) - groups.amin(-1, true)) / static_cast<float>(top));
  const at::Tensor codes =
      ((exact - least).to(at::kFloat) / step.to(at::kFloat)).round().clamp(0, top);
  const at::Tensor numbers = at::where(step > 0, codes.to(at::kDouble) * step, 0) + least;
  const at::Tensor finite = exact.isfinite().all(-1, true);
  return at::where(finite, numbers, std::numeric_limits<double>::quiet_NaN()).to(at::kFloat);
}

/// Keys [tokens, kv_heads, head_dim] of positions from 0 on as a cache holds them: rounded by
/// channel; NaN in the last tokens, whose group is not complete.
inline at::Tensor rounded_keys(KvFormat format, const at::Tensor& keys) {
  const int64_t count = keys.size(0) / kKeyGroup;
  const int64_t whole = count * kKeyGroup;
  at::Tensor rounded = at::full_like(keys, std::numeric_limits<double>::quiet_NaN());
  const at::Tensor groups = keys.narrow(0, 0, whole)
                                .reshape({count, kKeyGroup, keys.size(1), keys.size(2)})
                                .permute({0, 2, 3, 1});
  rounded.narrow(0, 0, whole)
      .copy_(ranged_reference(format, groups)
                 .permute({0, 3, 1, 2})
                 .reshape({whole, keys.size(1), keys.size(2)}));
  return rounded;
}

/// Values [tokens, kv_heads, head_dim], rounded by token.
inline at::Tensor rounded_values(KvFormat format, const at::Tensor& values) {
  at::Tensor rounded = at::empty_like(values);
  for (int64_t first = 0; first < values.size(2); first += kKvGroup) {
    const int64_t count = std::min(kKvGroup, values.size(2) - first);
    rounded.narrow(2, first, count).copy_(ranged_reference(format, values.narrow(2, first, count)));
  }
  return rounded;
}

}  // namespace specdec
