#pragma once
#include "core/kernels/attention.h"
#include "core/kernels/metal/metal_launcher.h"
#include "core/kernels/qkv.h"

namespace specdec::mps {

/// The ops of these names by the kernels of qkv.metal and attention.metal. Throw Error for heads
/// that these do not take.
void qkv_to_cache(const MetalLauncher& metal, const Tensor& qkv, const QkvOptions& options,
                  const KvView& view, Tensor& queries);
void paged_attention(MetalLauncher& metal, const Tensor& queries, const KvView& view,
                     const AttentionOptions& options, Tensor& out);

}  // namespace specdec::mps
