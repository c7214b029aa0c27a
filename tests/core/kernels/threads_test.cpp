// Every kernel of the forward shares large work among threads, and its bits do not depend on it.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "core/kernels/elementwise.h"
#include "core/kernels/gated_activation.h"
#include "core/kernels/linear_product.h"
#include "core/kernels/linear_rows.h"
#include "core/kernels/norm.h"
#include "core/kernels/qkv.h"
#include "core/kernels/soft_cap.h"
#include "core/kernels/team.h"
#include "kv/kv_cache.h"

namespace specdec {
namespace {

class ThreadsTest : public testing::Test {
 protected:
  ThreadsTest() { at::manual_seed(7); }
  ~ThreadsTest() override { at::set_num_threads(threads_); }

  /// `op` writes a result that depends on nothing else.
  static void expect_shared(const std::function<Tensor()>& op) {
    at::set_num_threads(1);
    const Tensor serial = op();
    at::set_num_threads(3);
    const int64_t before = Team::of_process().jobs();
    EXPECT_TRUE(at::equal(op(), serial));
    for (int i = 0; i < 3000 && Team::of_process().jobs() == before; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the team may back off
      EXPECT_TRUE(at::equal(op(), serial));
    }
    EXPECT_GT(Team::of_process().jobs(), before);
  }

 private:
  int threads_ = at::get_num_threads();
};

TEST_F(ThreadsTest, Linear) {
  for (const int64_t rows : {1, 2, 9, 100}) {
    const Linear linear(at::randn({333, 512}), WeightFormat::kBFloat16);
    const Tensor input = at::randn({rows, 512});
    expect_shared([&] { return linear_product(linear, input); });
  }
}

TEST_F(ThreadsTest, LookedUpRows) {
  const Tensor ids = at::randint(333, {20}, at::kInt);
  for (const WeightFormat format : {WeightFormat::kBFloat16, WeightFormat::kInt8}) {
    const Linear linear(at::randn({333, 512}), format);
    expect_shared([&] { return linear_rows(linear, ids); });
  }
}

TEST_F(ThreadsTest, Norms) {
  const Tensor input = at::randn({203, 515});
  const Tensor scale = at::randn({515});
  expect_shared([&] {
    Tensor out = at::empty_like(input);
    rms_norm(input, scale, 1e-6, out);
    add_rms_norm(out, input, scale, 1e-6);
    return out;
  });
}

TEST_F(ThreadsTest, GatedActivationOfManyRowsAndOfOne) {
  for (const auto& [rows, size] : {std::pair{75, 515}, {1, 40001}}) {
    const Tensor input = at::randn({rows, 2 * size});
    for (const Activation activation : {Activation::kGeluTanh, Activation::kSilu}) {
      expect_shared([&, rows = rows, size = size] {
        Tensor out = at::empty({rows, size});
        gated_activation(input, activation, out);
        return out;
      });
    }
  }
}

TEST_F(ThreadsTest, SoftCap) {
  const Tensor logits = at::randn({2, 40001});
  expect_shared([&] {
    Tensor out = logits.clone();
    soft_cap(out, 30.0);
    return out;
  });
}

TEST_F(ThreadsTest, Elementwise) {
  const Tensor input = at::randn({203, 515});
  expect_shared([&] {
    Tensor out = at::empty({203, 515});
    scaled_copy(input, 3.0, out);
    return out;
  });
  expect_shared([&] {
    Tensor out = input.clone();
    add_to(out, input);
    return out;
  });
  expect_shared([&] {
    Tensor out = input.clone();
    add_to_rows(out, {0, 203}, input[0]);
    return out;
  });
  expect_shared([&] {
    Tensor out = at::zeros({203, 1030});
    copy_columns(input, 515, out);
    return out;
  });
}

TEST_F(ThreadsTest, QkvToCache) {
  constexpr int64_t kNodes = 150;
  KvCache cache({LayerKv{2, 26, 0, -1}}, KvCacheOptions{.dtype = at::kFloat, .max_length = 256});
  cache.extend({.count = kNodes});
  const Tensor qkv = at::randn({kNodes, 8 * 26});
  const QkvOptions options{.heads = 4,
                           .eps = 1e-6,
                           .q_scale = at::randn({26}),
                           .k_scale = at::randn({26}),
                           .cos = at::randn({256, 13}),
                           .sin = at::randn({256, 13})};
  expect_shared([&] {
    KvView view = cache.view(0);
    view.keys.zero_();
    view.values.zero_();
    Tensor queries = at::empty({kNodes, 4, 26});
    qkv_to_cache(qkv, options, view, queries);
    return at::cat({queries.flatten(), view.keys.flatten(), view.values.flatten()});
  });
}

}  // namespace
}  // namespace specdec
