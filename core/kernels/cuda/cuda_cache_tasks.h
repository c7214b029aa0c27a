#pragma once
#include <ATen/core/Tensor.h>

#include "core/kernels/attention.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/kv_view.h"
#include "core/kernels/qkv.h"

/// Tasks of the kernels that read or write a layer's cache.
namespace specdec::cuda {

/// Pages and tables of a layer.
PagedCache paged_cache(const KvView& view);
/// Task of a fused projection of queries, keys and values.
QkvToCacheTask qkv_task(const at::Tensor& qkv, const QkvOptions& options, const KvView& view,
                        at::Tensor& queries);
/// What qkv_to_cache leaves to be done in a format with groups of keys.
RoundKeysTask round_keys_task(const KvView& view);
/// Task of a view with means that have columns.
PoolKeysTask pool_keys_task(const KvView& view);
/// Task of attention over the chunks up to the last position of the tables; without its workspace.
/// A bias is of the queries' device and type.
PagedAttentionTask attention_task(const at::Tensor& queries, const KvView& view,
                                  const AttentionOptions& options, at::Tensor& out);

}  // namespace specdec::cuda
