#pragma once
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/kv_view.h"

namespace specdec {

/// A cache as the CUDA kernels get it.
inline cuda::PagedCache cuda_cache(const KvView& view) {
  const BatchTables& tables = *view.tables;
  return {view.keys.mutable_data_ptr(),
          view.values.mutable_data_ptr(),
          static_cast<cuda::CudaKv>(view.format),
          static_cast<int32_t>(view.kv_heads()),
          static_cast<int32_t>(view.head_dim()),
          static_cast<int32_t>(view.page_size()),
          static_cast<int32_t>(view.values.size(3)),
          static_cast<int32_t>(view.window),
          static_cast<int32_t>(view.sink),
          static_cast<int32_t>(view.page_stride()),
          tables.rows.const_data_ptr<int32_t>(),
          tables.slots.const_data_ptr<int32_t>(),
          tables.positions.const_data_ptr<int32_t>(),
          tables.angles.const_data_ptr<int32_t>(),
          tables.path_starts.const_data_ptr<int32_t>(),
          tables.paths.const_data_ptr<int32_t>(),
          tables.lengths.const_data_ptr<int32_t>(),
          view.page_table()};
}

}  // namespace specdec
