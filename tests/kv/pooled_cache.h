#pragma once
#include <ATen/ATen.h>

#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "kv/compressed_store.h"
#include "tests/core/kernels/attention_case.h"

namespace specdec {

struct PoolingCase {
  AttentionCase shape;
  Pooling pooling;
};

inline void PrintTo(const PoolingCase& one, std::ostream* out) {
  PrintTo(one.shape, out);
  *out << " chunk " << one.pooling.chunk << " recent " << one.pooling.recent << " sink "
       << one.pooling.sink;
}

/// A cache of one layer that pools old keys and values, without norm or rotary embedding.
class PooledCache {
 public:
  static constexpr int64_t kMaxTokens = 2048;

  /// `attend`: paged_attention, or what does the same elsewhere.
  explicit PooledCache(const PoolingCase& c, int64_t page_size,
                       decltype(&paged_attention) attend = &paged_attention)
      : case_(c), attend_(attend) {
    const AttentionCase& shape = c.shape;
    const std::vector<LayerKv> layers = {shape.layer()};
    store_ = std::make_unique<CompressedStore>(
        std::make_unique<KvCache>(
            layers, KvCacheOptions{.dtype = shape.dtype,
                                   .format = shape.format,
                                   .rotation = shape.rotation,
                                   .page_size = page_size,
                                   .max_length = kMaxTokens,
                                   .window_slack = shape.exact_recent > 0 ? kMaxTokens : 0,
                                   .exact_recent = shape.exact_recent}),
        layers, c.pooling);
    options_.heads = shape.heads;
    options_.cos = at::ones({kMaxTokens, shape.head_dim / 2}, shape.dtype);
    options_.sin = at::zeros({kMaxTokens, shape.head_dim / 2}, shape.dtype);
  }

  KvStore& store() { return *store_; }
  /// Means of a row's first chunks, keys [kv_heads, head_dim, means], then values.
  std::pair<Tensor, Tensor> means(int64_t place, int64_t count) const {
    const PooledKeys& pooled = *store_->describe(0).pooled;
    return {pooled.keys()[place].narrow(2, 0, count), pooled.values()[place].narrow(1, 0, count)};
  }

  /// Attention of new nodes with these queries, keys and values.
  Tensor extend(RowId row, const std::vector<int64_t>& parents, const Tensor& qkv) {
    const int64_t nodes = qkv.size(0);
    const std::vector<RowId> rows(static_cast<size_t>(nodes), row);
    store_->extend({.count = nodes, .rows = rows, .parents = parents});
    Tensor queries = at::empty({nodes, case_.shape.heads, case_.shape.head_dim}, case_.shape.dtype);
    qkv_to_cache(qkv, options_, store_->view(0), queries);
    Tensor out = at::full_like(queries, 99);
    attend_(queries, store_->view(0), {AttentionCache::kScale, case_.shape.soft_cap, Tensor()},
            out);
    return out;
  }

 private:
  PoolingCase case_;
  decltype(&paged_attention) attend_;
  std::unique_ptr<CompressedStore> store_;
  QkvOptions options_;
};

}  // namespace specdec
