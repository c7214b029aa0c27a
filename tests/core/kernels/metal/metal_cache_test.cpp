// The cache by the Metal kernels, which run on the CPU: what is written to it, and attention.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/metal/metal_formats.h"
#include "tests/core/kernels/attention_case.h"
#include "tests/core/kernels/metal/emulated_queue.h"
#include "tests/core/kernels/written_heads.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

class MetalAttentionTest : public testing::TestWithParam<AttentionCase> {};

TEST_P(MetalAttentionTest, EqualsTheCpu) {
  at::manual_seed(3);
  cuda::emulation::set_seed(3);
  const auto metal = mps::emulated_metal_ops();
  for (const int64_t length : {1, 127, 300}) {
    AttentionCache cache(GetParam());
    std::vector<int64_t> path(static_cast<size_t>(length));
    for (int64_t i = 0; i < length; ++i) {
      path[static_cast<size_t>(i)] = i;
    }
    cache.extend({}, {}, cache.random_qkv(length));
    cache.kv().commit(0, path);
    const Tensor queries = cache.extend({0, 0, 0, 0}, {-1, 0, 0, 1}, cache.random_qkv(4));
    Tensor bias;
    if (GetParam().bias) {
      bias = at::randn({4, length + 2});
      bias[0][0] = -std::numeric_limits<float>::infinity();
    }
    Tensor out = at::full_like(queries, NAN);
    metal->paged_attention(queries, cache.kv().view(0),
                           {AttentionCache::kScale, GetParam().soft_cap, bias}, out);
    EXPECT_TRUE(at::allclose(out, cache.attend(queries, bias), 1e-4, 2e-6)) << length;
    if (GetParam().format == KvFormat::kHierarchical) {
      KvView view = cache.kv().view(0);
      view.read = KvRead::kUpperHalf;
      metal->paged_attention(queries, view, {AttentionCache::kScale, GetParam().soft_cap, bias},
                             out);
      EXPECT_TRUE(at::allclose(out, cache.attend(queries, bias, KvRead::kUpperHalf), 1e-4, 2e-6));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, MetalAttentionTest,
    testing::Values(AttentionCase{at::kFloat, 4, 1, 64, 0, 0, false},
                    AttentionCase{at::kFloat, 8, 1, 64, 100, 0, false, 16},
                    AttentionCase{at::kFloat, 3, 3, 16, 0, 5, true},
                    AttentionCase{at::kFloat, 6, 2, 128, 130, 50, false, 32, KvFormat::kBFloat16},
                    AttentionCase{at::kFloat, 2, 1, 512, 7, 0, false, 16},
                    AttentionCase{at::kFloat, 4, 2, 72, 0, 0, false, 16, KvFormat::kFloat16},
                    AttentionCase{at::kFloat, 4, 2, 64, 100, 0, false, 16, KvFormat::kFp8E4m3},
                    AttentionCase{at::kFloat, 4, 2, 72, 0, 20, false, 16, KvFormat::kQ8},
                    AttentionCase{at::kFloat, 4, 1, 512, 0, 0, true, 16, KvFormat::kQ4},
                    AttentionCase{at::kFloat, 2, 1, 70, 0, 0, false, 4, KvFormat::kHierarchical},
                    AttentionCase{at::kFloat, 4, 2, 96, 0, 0, false, 16, KvFormat::kQ4, 0,
                                  KvRotation::kHadamard},
                    AttentionCase{at::kFloat, 2, 1, 512, 0, 0, false, 16, KvFormat::kQ8, 0,
                                  KvRotation::kHadamard}),
    ParameterName());

class MetalPagesTest : public testing::TestWithParam<PageFormatCase> {};

TEST_P(MetalPagesTest, HoldTheBytesOfTheHost) {
  const auto metal = mps::emulated_metal_ops();
  const WrittenHeads written =
      write_heads(GetParam(), {},
                  [&](const Tensor& qkv, const QkvOptions& options, const KvView& view,
                      Tensor& queries) { metal->qkv_to_cache(qkv, options, view, queries); });
  expect_the_bytes_of_the_host(GetParam(), {}, written);
}

INSTANTIATE_TEST_SUITE_P(
    All, MetalPagesTest,
    testing::Values(PageFormatCase{KvFormat::kNative}, PageFormatCase{KvFormat::kBFloat16},
                    PageFormatCase{KvFormat::kFloat16}, PageFormatCase{KvFormat::kFp8E4m3},
                    PageFormatCase{KvFormat::kQ8}, PageFormatCase{KvFormat::kQ4},
                    PageFormatCase{KvFormat::kHierarchical},
                    PageFormatCase{KvFormat::kQ8, KvRotation::kHadamard},
                    PageFormatCase{KvFormat::kQ4, KvRotation::kHadamard}),
    page_format_name);

TEST(MetalPagesFormatsTest, OthersAreABug) {
  AttentionCache cache({at::kFloat, 1, 1, 32, 0, 0, false, 16, KvFormat::kQ3});
  const Tensor queries = cache.extend({}, {}, cache.random_qkv(1));
  Tensor out = at::empty_like(queries);
  EXPECT_THROW(mps::emulated_metal_ops()->paged_attention(queries, cache.kv().view(0),
                                                          {AttentionCache::kScale, 0, {}}, out),
               InternalError);
  EXPECT_FALSE(mps::metal_has(KvFormat::kKivi2));
}

}  // namespace
}  // namespace specdec
