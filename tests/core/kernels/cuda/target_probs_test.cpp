#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/sampling.h"

namespace specdec {
namespace {

Tensor cuda_probs(const Tensor& logits, int64_t vocab, const SamplingParams& params) {
  const Tensor probs =
      at::full({logits.size(0), vocab}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  const cuda::TargetProbsTask task = {logits.const_data_ptr<float>(),
                                      probs.mutable_data_ptr<double>(),
                                      logits.size(1),
                                      static_cast<int32_t>(logits.size(0)),
                                      static_cast<int32_t>(vocab),
                                      params.temperature,
                                      static_cast<int32_t>(params.top_k),
                                      params.top_p,
                                      params.min_p};
  EXPECT_EQ(specdec_cuda_target_probs(&task, nullptr), 0);
  return probs;
}

/// Rows of logits, with padding behind the vocabulary that would win.
void expect_the_hosts(const Tensor& logits, const SamplingParams& params) {
  const int64_t vocab = logits.size(1) - 3;
  logits.narrow(1, vocab, 3).fill_(1000);
  const Tensor probs = cuda_probs(logits, vocab, params);
  for (int64_t row = 0; row < logits.size(0); ++row) {
    std::vector<double> expected(static_cast<size_t>(vocab));
    target_distribution({logits[row].const_data_ptr<float>(), static_cast<size_t>(vocab)}, {},
                        params, expected);
    const double* actual = probs[row].const_data_ptr<double>();
    for (size_t id = 0; id < expected.size(); ++id) {
      ASSERT_EQ(actual[id] > 0, expected[id] > 0)
          << id << ": " << actual[id] << " " << expected[id];
      ASSERT_NEAR(actual[id], expected[id], 1e-12);
    }
  }
}

TEST(CudaTargetProbsTest, EqualTheHosts) {
  at::manual_seed(6);
  const std::vector<SamplingParams> all = {
      {},
      {.temperature = 1},
      {.temperature = 0.3, .top_k = 7},
      {.temperature = 1.5, .top_p = 0.8},
      {.temperature = 0.7, .top_p = 0.01},
      {.temperature = 1, .min_p = 0.1},
      {.temperature = 0.9, .top_k = 40, .top_p = 0.9, .min_p = 0.02},
      {.temperature = 1, .top_k = 100'000},
      {.temperature = 1e-310},
  };
  for (const SamplingParams& params : all) {
    for (const int64_t vocab : {1, 30, 1300}) {
      cuda::emulation::set_seed(static_cast<uint64_t>(vocab));
      SCOPED_TRACE(testing::Message()
                   << "temperature " << params.temperature << " top_k " << params.top_k << " top_p "
                   << params.top_p << " of " << vocab);
      expect_the_hosts(at::randn({2, vocab + 3}) * 3, params);
    }
  }
}

TEST(CudaTargetProbsTest, EqualOnesGoToTheLowestIds) {
  at::manual_seed(7);
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.temperature = 1, .top_k = 9},
        SamplingParams{.temperature = 1, .top_k = 1},
        SamplingParams{.temperature = 1, .top_p = 0.33}}) {
    SCOPED_TRACE(params.top_k);
    expect_the_hosts(at::randint(-2, 3, {2, 703}, at::kFloat), params);
    expect_the_hosts(at::zeros({1, 703}), params);
    const Tensor signs = at::zeros({1, 40});
    signs.narrow(1, 0, 20).neg_();  // -0 is 0
    expect_the_hosts(signs, params);
  }
}

TEST(CudaTargetProbsTest, ForbiddenTokensHaveNoMass) {
  at::manual_seed(8);
  const Tensor logits = at::randn({1, 103});
  logits.narrow(1, 10, 80).fill_(-std::numeric_limits<float>::infinity());
  expect_the_hosts(logits, {.temperature = 1, .top_k = 60});
  expect_the_hosts(logits, {.temperature = 2, .top_p = 0.999});
}

}  // namespace
}  // namespace specdec
