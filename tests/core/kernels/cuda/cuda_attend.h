#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/kernels/cuda/cuda_cache_tasks.h"
#include "tests/core/kernels/attention_case.h"

namespace specdec {

/// paged_attention by the CUDA kernels, which split what they write where `space` is given.
inline Tensor cuda_attend(const KvView& view, double soft_cap, const Tensor& queries,
                          const Tensor& bias = {}, const Tensor& space = {}) {
  Tensor out = at::full_like(queries, std::numeric_limits<float>::quiet_NaN());
  cuda::PagedAttentionTask task =
      cuda::attention_task(queries, view, {AttentionCache::kScale, soft_cap, Tensor()}, out);
  task.bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  task.bias_columns = bias.defined() ? static_cast<int32_t>(bias.size(1)) : 0;
  const Tensor workspace =
      at::full({specdec_cuda_attention_workspace(&task)}, std::numeric_limits<float>::quiet_NaN());
  task.workspace = workspace.mutable_data_ptr<float>();
  task.split = space.defined() ? space.mutable_data_ptr() : nullptr;
  EXPECT_EQ(specdec_cuda_paged_attention(&task, nullptr), 0);
  return out;
}

/// What AttentionCache::attend does, by the CUDA kernels.
inline Tensor cuda_attend(const AttentionCache& cache, const Tensor& queries,
                          const Tensor& bias = {}, KvRead read = KvRead::kAll) {
  KvView view = cache.kv().view(0);
  view.read = read;
  return cuda_attend(view, cache.shape().soft_cap, queries, bias);
}

}  // namespace specdec
