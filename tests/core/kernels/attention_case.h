#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/attention.h"
#include "core/kernels/hadamard.h"
#include "core/kernels/qkv.h"
#include "kv/kv_cache.h"

namespace specdec {

/// Levels of kQ3 that differ from head to head.
inline Tensor distinct_levels(int64_t kv_heads) {
  const Tensor numbers = at::arange(2 * kv_heads * kQ3Levels, at::kFloat);
  return (numbers * 0.37).sin().mul_(2).view({2, kv_heads, kQ3Levels});
}

struct AttentionCase {
  at::ScalarType dtype;
  int64_t heads, kv_heads, head_dim, window;
  double soft_cap;
  bool bias;
  int64_t page_size = 4;
  KvFormat format = KvFormat::kNative;
  int64_t sink = 0;
  KvRotation rotation = KvRotation::kNone;
  int64_t exact_recent = 0;
  bool codebook = false;

  LayerKv layer() const {
    return {.kv_heads = kv_heads,
            .head_dim = head_dim,
            .window = window,
            .sink = sink,
            .levels = codebook ? distinct_levels(kv_heads) : Tensor()};
  }
  /// Whether a key is read as it is, so many positions behind a node.
  bool reads_exact(int64_t age) const {
    return age < exact_recent && (window == 0 || age < window);
  }
};

inline void PrintTo(const AttentionCase& one, std::ostream* out) {
  *out << one.dtype << " heads " << one.heads << " kv " << one.kv_heads << " dim " << one.head_dim
       << " window " << one.window << " cap " << one.soft_cap << (one.bias ? " bias" : "")
       << " page " << one.page_size << (one.format == KvFormat::kNative ? "" : " ")
       << (one.format == KvFormat::kNative ? "" : kv_format_name(one.format))
       << (one.sink > 0 ? " sink " + std::to_string(one.sink) : "")
       << (one.rotation == KvRotation::kHadamard ? " hadamard" : "")
       << (one.exact_recent > 0 ? " exact " + std::to_string(one.exact_recent) : "")
       << (one.codebook ? " codebook" : "");
}

/// Pages, and what is read of them.
struct PageFormatCase {
  KvFormat format;
  KvRotation rotation = KvRotation::kNone;
  KvRead read = KvRead::kAll;
};

inline std::string page_format_name(const testing::TestParamInfo<PageFormatCase>& info) {
  return std::string(kv_format_name(info.param.format)) +
         (info.param.rotation == KvRotation::kHadamard ? "_hadamard" : "") +
         (info.param.read == KvRead::kUpperHalf ? "_upper_half" : "");
}

/// The numbers [..., head_dim] as a cache holds them, and as an attention reads them.
inline Tensor rounded_to(const AttentionCase& c, const Tensor& numbers,
                         KvRead read = KvRead::kAll) {
  const KvFormat format = c.format;
  if (format == KvFormat::kNative) {
    return numbers;
  }
  Tensor rounded = numbers.contiguous().clone();
  const int64_t head_dim = rounded.size(-1);
  std::vector<double> stored(static_cast<size_t>(head_dim));  // more than any format takes
  for (int64_t i = 0; i < rounded.numel(); i += head_dim) {
    float* head = rounded.mutable_data_ptr<float>() + i;
    if (c.rotation == KvRotation::kHadamard) {
      hadamard(head, head_dim);
    }
    encode_kv(format, head, head_dim, {stored.data(), 1});
    if (read == KvRead::kUpperHalf) {
      decode_upper_half({stored.data(), 1}, head_dim, head);
    } else {
      decode_kv(format, {stored.data(), 1}, head_dim, head);
    }
  }
  return rounded;
}

/// Rows [..., head_dim] in the activations' dtype, multiplied as the case's keys and values are.
template <class T>
Tensor rotated_as(const AttentionCase& c, const Tensor& rows) {
  Tensor rotated = rows.contiguous().clone();
  for (int64_t i = 0; c.rotation == KvRotation::kHadamard && i < rows.numel(); i += c.head_dim) {
    hadamard(rotated.mutable_data_ptr<T>() + i, c.head_dim);
  }
  return rotated;
}

/// A cache of one layer that holds keys and values as they are given: without norm or rotation.
class AttentionCache {
 public:
  static constexpr double kScale = 0.3;
  static constexpr int64_t kMaxLength = 4096;

  explicit AttentionCache(const AttentionCase& c)
      : case_(c),
        cache_({c.layer()}, {.dtype = c.dtype,
                             .format = c.format,
                             .rotation = c.rotation,
                             .device = at::kCPU,
                             .page_size = c.page_size,
                             .max_length = kMaxLength,
                             .exact_recent = c.exact_recent}) {
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

  /// Attention of the nodes of the newest extend.
  Tensor attend(const Tensor& queries, const Tensor& bias = {}, KvRead read = KvRead::kAll) const {
    Tensor out = at::full_like(queries, 99);
    KvView view = cache_.view(0);
    view.read = read;
    paged_attention(queries, view, {kScale, case_.soft_cap, bias}, out);
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
