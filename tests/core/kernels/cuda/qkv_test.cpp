#include "core/kernels/qkv.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "core/kernels/cuda/cuda_cache_tasks.h"
#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/launch_shape.h"
#include "kv/kv_cache.h"
#include "tests/core/kernels/attention_case.h"
#include "tests/core/kernels/written_heads.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

constexpr int64_t kCudaQkvPositions = 64;

struct CudaQkvCase {
  int64_t heads, kv_heads, head_dim;
  bool norm;
  KvFormat format = KvFormat::kNative;
  int64_t kv_projections = 2;
  bool value_norm = false;
  KvRotation rotation = KvRotation::kNone;
  int64_t exact_recent = 0;

  int64_t width() const { return (heads + kv_projections * kv_heads) * head_dim; }
};

void PrintTo(const CudaQkvCase& one, std::ostream* out) {
  *out << "heads " << one.heads << " kv " << one.kv_heads << " dim " << one.head_dim
       << (one.norm ? " norm" : "") << " " << kv_format_name(one.format) << " projections "
       << one.kv_projections << (one.value_norm ? " value norm" : "")
       << (one.rotation == KvRotation::kHadamard ? " hadamard" : "")
       << (one.exact_recent > 0 ? " exact " + std::to_string(one.exact_recent) : "");
}

class CudaQkvTest : public testing::TestWithParam<CudaQkvCase> {
 protected:
  void SetUp() override {
    at::manual_seed(1);
    const CudaQkvCase& c = GetParam();
    options_.heads = c.heads;
    options_.eps = 1e-6;
    options_.kv_projections = c.kv_projections;
    options_.value_norm = c.value_norm;
    if (c.norm) {
      options_.q_scale = at::randn({c.head_dim});
      options_.k_scale = at::randn({c.head_dim});
    }
    const Tensor angles = at::randn({kCudaQkvPositions, c.head_dim / 2});
    options_.cos = angles.cos();
    options_.sin = angles.sin();
  }

  KvCache new_cache() const {
    const CudaQkvCase& c = GetParam();
    return KvCache({{c.kv_heads, c.head_dim, 0, -1}}, {.dtype = at::kFloat,
                                                       .format = c.format,
                                                       .rotation = c.rotation,
                                                       .device = at::kCPU,
                                                       .page_size = 4,
                                                       .max_length = kCudaQkvPositions,
                                                       .exact_recent = c.exact_recent});
  }

  void cuda_qkv(const Tensor& qkv, const KvView& view, const Tensor& queries) const {
    const auto data = [](const Tensor& t) {
      return t.defined() ? t.const_data_ptr<float>() : nullptr;
    };
    const cuda::QkvToCacheTask task = {data(qkv),
                                       data(options_.q_scale),
                                       data(options_.k_scale),
                                       data(options_.cos),
                                       data(options_.sin),
                                       queries.mutable_data_ptr<float>(),
                                       cuda::paged_cache(view),
                                       static_cast<int32_t>(qkv.size(0)),
                                       static_cast<int32_t>(options_.heads),
                                       static_cast<float>(options_.eps),
                                       static_cast<int32_t>(options_.kv_projections),
                                       options_.value_norm};
    ASSERT_EQ(specdec_cuda_qkv_to_cache(&task, nullptr), 0);
  }

  /// Whether keys or values are the same, but for a step of the format where a number lies within
  /// float32's rounding of a border of it.
  static void expect_written(const Tensor& read, const Tensor& wanted) {
    const CudaQkvCase& c = GetParam();
    const AttentionCase pages{at::kFloat, c.heads, c.kv_heads, c.head_dim, 0,         0,
                              false,      4,       c.format,   0,          c.rotation};
    const Tensor written = rotated_as<float>(pages, read);  // as they were rounded
    const Tensor expected = rotated_as<float>(pages, wanted);
    constexpr double kSteps[] = {2e-6,     0x1.01p-8, 0x1.01p-11, 0x1.01p-4,
                                 0x1.1p-7, 0x1.1p-3,  0.4,        0x1.1p-7};
    const KvFormat format = c.format;
    const double step = kSteps[static_cast<int>(format)];
    const Tensor range = has_scales(format) ? expected.abs().amax(-1, true) : expected.abs();
    const double floor = format == KvFormat::kFp8E4m3 ? 0x1.01p-9 : 3e-6;
    EXPECT_TRUE(((written - expected).abs() <= range * step + floor).all().item<bool>());
    EXPECT_GT(at::isclose(written, expected, 2e-6, 3e-6).to(at::kFloat).mean().item<float>(),
              format == KvFormat::kNative ? 0.9999F : 0.9F)
        << "a format rounds alike, but for numbers at its borders";
  }

  QkvOptions options_;
};

TEST_P(CudaQkvTest, WritesWhatTheOpWrites) {
  const CudaQkvCase& c = GetParam();
  KvCache host = new_cache();
  KvCache device = new_cache();
  for (const int64_t nodes : {5, 1, 9}) {
    cuda::emulation::set_seed(static_cast<uint64_t>(nodes));
    const Tensor qkv = at::randn({nodes, c.width()});
    Tensor expected = at::empty({nodes, c.heads, c.head_dim});
    const Tensor queries = at::full_like(expected, std::numeric_limits<float>::quiet_NaN());
    std::vector<int64_t> path;
    for (KvCache* cache : {&host, &device}) {
      cache->extend({.count = nodes});
      if (c.kv_projections == 0) {  // what nothing is written to
        cache->view(0).keys.fill_(3);
        cache->view(0).values.fill_(3);
      }
    }
    qkv_to_cache(qkv, options_, host.view(0), expected);
    cuda_qkv(qkv, device.view(0), queries);
    EXPECT_TRUE(at::allclose(queries, expected, 2e-6, 3e-6));
    for (int64_t node = 0; node < nodes; ++node) {
      path.push_back(node);
    }
    host.commit(0, path);
    device.commit(0, path);
  }
  const auto expected = host.key_values(0, 0);
  const auto written = device.key_values(0, 0);
  expect_written(written.first, expected.first);
  const int64_t rounded = expected.first.size(1) - c.exact_recent;
  EXPECT_TRUE(at::allclose(written.first.narrow(1, rounded, c.exact_recent),
                           expected.first.narrow(1, rounded, c.exact_recent), 2e-6, 3e-6));
  if (c.value_norm) {
    expect_written(written.second, expected.second);
  } else {
    EXPECT_TRUE(at::equal(written.second, expected.second));
  }
}

/// Nodes that read another model's cache are rotated by another position than their own.
TEST_P(CudaQkvTest, RotatesByTheAngle) {
  const CudaQkvCase& c = GetParam();
  KvCache host = new_cache();
  KvCache device = new_cache();
  for (KvCache* cache : {&host, &device}) {
    cache->extend({.count = 3});
    Tensor angles = cache->view(0).tables->angles;
    cache->view(0).keys.fill_(3);
    angles.narrow(0, 0, 3).copy_(at::tensor({40, 7, 7}, at::kInt));
  }
  const Tensor qkv = at::randn({3, c.width()});
  Tensor expected = at::empty({3, c.heads, c.head_dim});
  const Tensor queries = at::full_like(expected, std::numeric_limits<float>::quiet_NaN());
  qkv_to_cache(qkv, options_, host.view(0), expected);
  cuda_qkv(qkv, device.view(0), queries);
  EXPECT_TRUE(at::allclose(queries, expected, 2e-6, 3e-6));
  host.commit(0, std::vector<int64_t>{0, 1, 2});
  device.commit(0, std::vector<int64_t>{0, 1, 2});
  expect_written(device.key_values(0, 0).first, host.key_values(0, 0).first);
}

TEST_P(CudaQkvTest, LeavesPaddingAlone) {
  const CudaQkvCase& c = GetParam();
  const Tensor qkv = at::randn({3, c.width()});
  Tensor untouched;  // what holds both of two numbers that stood there before
  for (const int before : {7, 9}) {
    KvCache cache = new_cache();
    cache.extend({.count = 3});
    const KvView view = cache.view(0);
    Tensor positions = view.tables->positions;
    positions[2] = -1;
    view.values.fill_(before);
    const Tensor queries = at::full({3, c.heads, c.head_dim}, 9.0F);
    cuda_qkv(qkv, view, queries);
    EXPECT_TRUE((queries[2] == 9).all().item<bool>());
    const Tensor same = view.values == before;
    untouched = untouched.defined() ? untouched.logical_and(same) : same;
  }
  const int64_t head_elements = untouched.size(3);
  EXPECT_EQ(untouched.sum().item<int64_t>(),
            untouched.numel() - (c.kv_projections > 0 ? 2 * c.kv_heads * head_elements : 0));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaQkvTest,
    testing::Values(
        CudaQkvCase{4, 1, 64, true}, CudaQkvCase{4, 2, 16, false}, CudaQkvCase{3, 3, 24, true},
        CudaQkvCase{1, 1, 2, true}, CudaQkvCase{4, 1, 256, true, KvFormat::kBFloat16},
        CudaQkvCase{2, 1, 512, true}, CudaQkvCase{4, 2, 40, false, KvFormat::kBFloat16},
        CudaQkvCase{4, 2, 32, true, KvFormat::kNative, 2, true},
        CudaQkvCase{4, 2, 8, true, KvFormat::kNative, 1, false},
        CudaQkvCase{4, 2, 512, true, KvFormat::kBFloat16, 1, true},
        CudaQkvCase{3, 1, 16, false, KvFormat::kNative, 1, true},
        CudaQkvCase{4, 2, 64, true, KvFormat::kNative, 0},
        CudaQkvCase{2, 1, 8, false, KvFormat::kBFloat16, 0},
        CudaQkvCase{4, 2, 40, true, KvFormat::kFloat16},
        CudaQkvCase{4, 1, 64, true, KvFormat::kFp8E4m3, 2, true},
        CudaQkvCase{4, 2, 64, true, KvFormat::kQ8},
        CudaQkvCase{3, 1, 40, true, KvFormat::kQ8, 1, true},
        CudaQkvCase{4, 2, 256, true, KvFormat::kQ4, 2, true},
        CudaQkvCase{2, 1, 6, false, KvFormat::kQ4}, CudaQkvCase{2, 1, 512, false, KvFormat::kQ4, 1},
        CudaQkvCase{4, 2, 40, true, KvFormat::kQ3},
        CudaQkvCase{3, 1, 70, true, KvFormat::kHierarchical},
        CudaQkvCase{4, 2, 96, true, KvFormat::kQ4, 2, false, KvRotation::kHadamard},
        CudaQkvCase{2, 1, 512, true, KvFormat::kQ8, 1, true, KvRotation::kHadamard},
        CudaQkvCase{2, 1, 64, false, KvFormat::kHierarchical, 0, false, KvRotation::kHadamard},
        CudaQkvCase{4, 2, 64, true, KvFormat::kQ8, 1, true, KvRotation::kNone, 6},
        CudaQkvCase{3, 1, 40, true, KvFormat::kQ3, 2, false, KvRotation::kHadamard, 4}),
    ParameterName());

class CudaKvFormatTest : public testing::TestWithParam<PageFormatCase> {
 protected:
  static WrittenHeads on_device(const Tensor& levels) {
    return write_heads(
        GetParam(), levels,
        [](const Tensor& qkv, const QkvOptions& options, const KvView& view, Tensor& queries) {
          cuda::QkvToCacheTask task{};
          task.qkv = qkv.const_data_ptr<float>();
          task.cosines = options.cos.const_data_ptr<float>();
          task.sines = options.sin.const_data_ptr<float>();
          task.queries = queries.mutable_data_ptr<float>();
          task.cache = cuda::paged_cache(view);
          task.nodes = static_cast<int32_t>(qkv.size(0));
          task.heads = 1;
          task.kv_projections = 2;
          ASSERT_EQ(specdec_cuda_qkv_to_cache(&task, nullptr), 0);
        });
  }
};

TEST_P(CudaKvFormatTest, WritesTheBytesOfTheHost) {
  expect_the_bytes_of_the_host(GetParam(), {}, on_device({}));
  if (GetParam().format == KvFormat::kQ3) {
    expect_the_bytes_of_the_host(GetParam(), distinct_levels(1), on_device(distinct_levels(1)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaKvFormatTest,
    testing::Values(PageFormatCase{KvFormat::kFloat16}, PageFormatCase{KvFormat::kFp8E4m3},
                    PageFormatCase{KvFormat::kQ8}, PageFormatCase{KvFormat::kQ4},
                    PageFormatCase{KvFormat::kQ3}, PageFormatCase{KvFormat::kHierarchical},
                    PageFormatCase{KvFormat::kQ8, KvRotation::kHadamard},
                    PageFormatCase{KvFormat::kQ3, KvRotation::kHadamard}),
    page_format_name);

TEST(CudaQkvChecksTest, RefusesShapesThatItCannotTake) {
  cuda::QkvToCacheTask task{};
  task.nodes = 1;
  task.heads = 1;
  task.kv_projections = 3;
  task.cache.kv_heads = 1;
  task.cache.page_size = 16;
  task.cache.head_dim = 8;
  EXPECT_EQ(specdec_cuda_qkv_to_cache(&task, nullptr), cuda::kInvalidValue);
  task.kv_projections = 2;
  task.cache.head_dim = 7;
  EXPECT_EQ(specdec_cuda_qkv_to_cache(&task, nullptr), cuda::kInvalidValue);
}

}  // namespace
}  // namespace specdec
