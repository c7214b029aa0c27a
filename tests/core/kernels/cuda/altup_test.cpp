#include "core/kernels/altup.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/kernels/cuda/emulation/emulation.h"
#include "core/kernels/cuda/kernels.h"
#include "core/kernels/cuda/launch_shape.h"

namespace specdec {
namespace {

/// Residual streams of some tokens.
struct CudaStreams {
  int64_t count, rows, size;
  Tensor streams = at::randn({count, rows, size});
  Tensor routes = at::randn({rows, count});
};

Tensor unwritten(at::IntArrayRef shape) {
  return at::full(shape, std::numeric_limits<float>::quiet_NaN());
}

const float* numbers_of(const Tensor& tensor) { return tensor.const_data_ptr<float>(); }
float* memory_of(const Tensor& tensor) { return tensor.mutable_data_ptr<float>(); }
int32_t size_of(int64_t size) { return static_cast<int32_t>(size); }

Tensor cuda_route(const Tensor& input, const AltUpRouter& router) {
  const Tensor routes = unwritten({input.size(0), router.weight.size(0)});
  const cuda::AltUpRouteTask task = {numbers_of(input),       numbers_of(router.weight),
                                     numbers_of(router.norm), memory_of(routes),
                                     size_of(input.size(0)),  size_of(router.weight.size(0)),
                                     size_of(input.size(1)),  static_cast<float>(router.eps)};
  EXPECT_EQ(specdec_cuda_altup_route(&task, nullptr), 0);
  return routes;
}

void cuda_predict(const CudaStreams& s, const Tensor& coefficients, const Tensor& to) {
  const cuda::AltUpPredictTask task = {
      numbers_of(s.streams), numbers_of(s.routes), numbers_of(coefficients), memory_of(to),
      size_of(s.rows),       size_of(s.count),     size_of(s.size)};
  ASSERT_EQ(specdec_cuda_altup_predict(&task, nullptr), 0);
}

template <class Body>
void for_shapes(const Body& body) {
  at::manual_seed(21);
  for (const int64_t count : {1, 4, 8}) {
    for (const int64_t rows : {0, 1, 5}) {
      for (const int64_t size : {3, 256, 650}) {
        SCOPED_TRACE(testing::Message() << count << " streams of " << rows << " x " << size);
        cuda::emulation::set_seed(static_cast<uint64_t>(count * rows + size));
        body(CudaStreams{count, rows, size});
      }
    }
  }
}

TEST(CudaAltUpTest, RoutesAsTheOpDoes) {
  for_shapes([](const CudaStreams& s) {
    const AltUpRouter router = {at::randn({s.count, s.size}), at::randn({s.size}) / s.size, 1e-6};
    const Tensor input = at::randn({s.rows, s.size}) * 3;
    Tensor expected = at::empty({s.rows, s.count});
    altup_route(input, router, expected);
    EXPECT_TRUE(at::allclose(cuda_route(input, router), expected, 1e-5, 1e-6));
  });
}

TEST(CudaAltUpTest, PredictsAsTheOpDoes) {
  for_shapes([](const CudaStreams& s) {
    const Tensor coefficients = at::randn({s.count * s.count, s.count});
    Tensor expected = at::empty_like(s.streams);
    altup_predict(s.streams, s.routes, coefficients, expected);
    const Tensor predicted = unwritten(s.streams.sizes());
    cuda_predict(s, coefficients, predicted);
    EXPECT_TRUE(at::allclose(predicted, expected, 1e-5, 1e-5));
    cuda_predict(s, coefficients, s.streams);  // in place
    EXPECT_TRUE(at::equal(s.streams, predicted));
  });
}

TEST(CudaAltUpTest, CorrectsAsTheOpDoes) {
  for_shapes([](const CudaStreams& s) {
    const Tensor coefficients = at::randn({s.count, s.count});
    const Tensor activated = at::randn({s.rows, s.size});
    Tensor expected = s.streams.clone();
    const int64_t active = s.count / 2;
    altup_correct(activated, s.routes, coefficients, active, expected);
    const cuda::AltUpCorrectTask task = {
        numbers_of(activated), numbers_of(s.routes), numbers_of(coefficients), memory_of(s.streams),
        size_of(s.rows),       size_of(s.count),     size_of(active),          size_of(s.size)};
    ASSERT_EQ(specdec_cuda_altup_correct(&task, nullptr), 0);
    EXPECT_TRUE(at::allclose(s.streams, expected, 1e-5, 1e-5));
  });
}

TEST(CudaAltUpTest, MatchesAndAveragesAsTheOpsDo) {
  for_shapes([](const CudaStreams& s) {
    const Tensor like = at::randn({s.rows, s.size}) * 5;
    const Tensor values = at::randn({s.rows, s.size});
    if (s.rows > 1) {
      values[1].zero_();  // a root mean square below the smallest
    }
    Tensor expected = values.clone();
    match_rms(like, expected);
    const cuda::MatchRmsTask match = {numbers_of(like), memory_of(values), size_of(s.rows),
                                      size_of(s.size)};
    ASSERT_EQ(specdec_cuda_match_rms(&match, nullptr), 0);
    EXPECT_TRUE(at::allclose(values, expected, 1e-5, 1e-6));

    mean_stream(s.streams, expected);
    const Tensor mean = unwritten(expected.sizes());
    const cuda::MeanStreamTask task = {numbers_of(s.streams), memory_of(mean), size_of(s.count),
                                       s.rows * s.size};
    ASSERT_EQ(specdec_cuda_mean_stream(&task, nullptr), 0);
    EXPECT_TRUE(at::equal(mean, expected));
  });
}

TEST(CudaAltUpTest, ATokenAmongOthersHasItsOwnBits) {
  at::manual_seed(22);
  const CudaStreams all{4, 6, 300};
  all.streams.select(1, 2).fill_(std::numeric_limits<float>::quiet_NaN());
  const Tensor coefficients = at::randn({16, 4});
  const Tensor among_others = unwritten(all.streams.sizes());
  cuda_predict(all, coefficients, among_others);
  const AltUpRouter router = {at::randn({4, 300}), at::randn({300}), 1e-6};
  const Tensor routes = cuda_route(all.streams[0], router);
  for (const int64_t row : {0, 3, 5}) {
    cuda::emulation::set_seed(static_cast<uint64_t>(row));
    const CudaStreams one{4, 1, 300, all.streams.narrow(1, row, 1).clone(),
                          all.routes.narrow(0, row, 1).clone()};
    const Tensor alone = unwritten(one.streams.sizes());
    cuda_predict(one, coefficients, alone);
    EXPECT_TRUE(at::equal(alone, among_others.narrow(1, row, 1)));
    EXPECT_TRUE(at::equal(cuda_route(one.streams[0], router), routes.narrow(0, row, 1)));
  }
}

TEST(CudaAltUpTest, RefusesWhatItCannotTake) {
  cuda::AltUpPredictTask predict{};
  predict.rows = 1;
  predict.size = 1;
  predict.count = 9;
  EXPECT_EQ(specdec_cuda_altup_predict(&predict, nullptr), cuda::kInvalidValue);
  cuda::AltUpCorrectTask correct{};
  correct.rows = 1;
  correct.size = 1;
  correct.count = 4;
  correct.active = 4;
  EXPECT_EQ(specdec_cuda_altup_correct(&correct, nullptr), cuda::kInvalidValue);
}

}  // namespace
}  // namespace specdec
