#pragma once
#include <ATen/ATen.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/attention.h"
#include "core/kernels/qkv.h"
#include "kv/kv_cache.h"

namespace specdec {

struct AttentionCase {
  at::ScalarType dtype;
  int64_t heads, kv_heads, head_dim, window;
  double soft_cap;
  bool bias;
  int64_t page_size = 4;
  KvFormat format = KvFormat::kNative;
  int64_t sink = 0;
};

inline void PrintTo(const AttentionCase& one, std::ostream* out) {
  *out << one.dtype << " heads " << one.heads << " kv " << one.kv_heads << " dim " << one.head_dim
       << " window " << one.window << " cap " << one.soft_cap << (one.bias ? " bias" : "")
       << " page " << one.page_size << (one.format == KvFormat::kNative ? "" : " ")
       << (one.format == KvFormat::kNative ? "" : kv_format_name(one.format))
       << (one.sink > 0 ? " sink " + std::to_string(one.sink) : "");
}

/// The numbers [..., head_dim] as a cache holds them.
inline Tensor rounded_to(KvFormat format, const Tensor& numbers) {
  if (format == KvFormat::kNative) {
    return numbers;
  }
  Tensor rounded = numbers.contiguous().clone();
  const int64_t head_dim = rounded.size(-1);
  std::vector<double> stored(static_cast<size_t>(head_dim));  // more than any format takes
  for (int64_t i = 0; i < rounded.numel(); i += head_dim) {
    float* head = rounded.mutable_data_ptr<float>() + i;
    encode_kv(format, head, head_dim, {stored.data(), 1});
    decode_kv(format, {stored.data(), 1}, head_dim, head);
  }
  return rounded;
}

/// A cache of one layer that holds keys and values as they are given: without norm or rotation.
class AttentionCache {
 public:
  static constexpr double kScale = 0.3;
  static constexpr int64_t kMaxLength = 4096;

  explicit AttentionCache(const AttentionCase& c)
      : case_(c),
        cache_({{c.kv_heads, c.head_dim, c.window, -1, c.sink}}, {.dtype = c.dtype,
                                                                  .format = c.format,
                                                                  .device = at::kCPU,
                                                                  .page_size = c.page_size,
                                                                  .max_length = kMaxLength}) {
    options_.heads = c.heads;
    options_.cos = at::ones({kMaxLength, c.head_dim / 2}, c.dtype);
    options_.sin = at::zeros({kMaxLength, c.head_dim / 2}, c.dtype);
    for (int64_t row = 1; row < kRows; ++row) {
      cache_.open();
    }
  }

  /// New nodes, of the rows 0 to kRows - 1, with these queries, keys and values: [n, (heads + 2 *
  /// kv_heads) * head_dim]. Returns the queries.
  Tensor extend(const std::vector<int64_t>& rows, const std::vector<int64_t>& parents,
                const Tensor& qkv) {
    const int64_t nodes = qkv.size(0);
    cache_.extend({.count = nodes, .rows = rows, .parents = parents});
    Tensor queries = at::empty({nodes, case_.heads, case_.head_dim}, case_.dtype);
    qkv_to_cache(qkv, options_, cache_.view(0), queries);
    return queries;
  }

  /// Of the nodes of the newest extend.
  Tensor attend(const Tensor& queries, const Tensor& bias = {}) const {
    Tensor out = at::full_like(queries, 99);
    paged_attention(queries, cache_.view(0), {kScale, case_.soft_cap, bias}, out);
    return out;
  }

  Tensor random_qkv(int64_t nodes) const {
    return at::randn({nodes, (case_.heads + 2 * case_.kv_heads) * case_.head_dim}, case_.dtype);
  }

  const AttentionCase& shape() const { return case_; }
  KvCache& kv() { return cache_; }
  const KvCache& kv() const { return cache_; }

 private:
  static constexpr int64_t kRows = 4;

  AttentionCase case_;
  KvCache cache_;
  QkvOptions options_;
};

}  // namespace specdec
