#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/core/kernels/attention_case.h"

namespace specdec {

/// What an op like qkv_to_cache writes of heads that are neither normed nor turned.
struct WrittenHeads {
  Tensor keys, values, queries;
};

using WriteHeads = std::function<void(const Tensor& qkv, const QkvOptions& options,
                                      const KvView& view, Tensor& queries)>;

/// Numbers of every size, zeros, infinities and NaN, in three groups of a head: [24, 3 * dim].
inline Tensor numbers_of_every_size(int64_t dim) {
  constexpr int64_t kTokens = 24;
  at::manual_seed(4);
  Tensor qkv = at::randn({kTokens, 3 * dim});
  qkv.mul_(at::pow(10.0, at::arange(kTokens) - 12).to(at::kFloat).unsqueeze(1));
  qkv[3].zero_();
  qkv[4].copy_(at::full({3 * dim}, -2.5F));  // equal magnitudes: the first one counts
  qkv[4].narrow(0, dim, dim).copy_(at::where(at::arange(dim) % 2 == 0, 2.5F, -2.5F));
  for (const int64_t at_dim : {dim + 5, 2 * dim + 40}) {
    qkv[5][at_dim] = std::numeric_limits<float>::infinity();
    qkv[6][at_dim] = std::numeric_limits<float>::quiet_NaN();
  }
  return qkv;
}

inline WrittenHeads write_heads(const PageFormatCase& pages, const Tensor& levels,
                                const WriteHeads& write) {
  const int64_t dim = pages.rotation == KvRotation::kNone ? 72 : 96;
  const Tensor qkv = numbers_of_every_size(dim);
  QkvOptions options;
  options.heads = 1;
  options.cos = at::ones({64, dim / 2});
  options.sin = at::zeros({64, dim / 2});
  LayerKv layer{.kv_heads = 1, .head_dim = dim};
  layer.levels = levels;
  KvCache cache({layer}, {.dtype = at::kFloat,
                          .format = pages.format,
                          .rotation = pages.rotation,
                          .device = at::kCPU,
                          .page_size = 16,
                          .max_length = 64});
  cache.extend({.count = qkv.size(0)});
  const KvView view = cache.view(0);
  view.keys.zero_();
  view.values.zero_();
  Tensor queries = at::empty({qkv.size(0), 1, dim});
  write(qkv, options, view, queries);
  return {view.keys.clone(), view.values.clone(), queries};
}

/// The bytes that the host's op writes, and the bits of its queries.
inline void expect_the_bytes_of_the_host(const PageFormatCase& pages, const Tensor& levels,
                                         const WrittenHeads& written) {
  const WrittenHeads wanted =
      write_heads(pages, levels,
                  [](const Tensor& qkv, const QkvOptions& options, const KvView& view,
                     Tensor& queries) { qkv_to_cache(qkv, options, view, queries); });
  const auto different = [](const Tensor& one, const Tensor& other) {
    return (one.view(at::kByte) != other.view(at::kByte)).sum().item<int64_t>();
  };
  EXPECT_GT((wanted.keys.view(at::kByte) != 0).sum().item<int64_t>(), 0);
  EXPECT_EQ(different(written.keys, wanted.keys), 0);
  EXPECT_EQ(different(written.values, wanted.values), 0);
  EXPECT_TRUE(at::allclose(written.queries, wanted.queries, 0, 0, true));
}

}  // namespace specdec
