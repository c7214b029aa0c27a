#include "core/kernels/altup.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/kernels/per_layer_inputs.h"
#include "core/kernels/sparse_gate.h"
#include "tests/support/max_difference.h"

namespace specdec {
namespace {

/// The ops of Gemma 3n and 4 E against the same formulas in float64.
class StreamsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  static constexpr int64_t kNodes = 5;
  static constexpr int64_t kStreams = 3;
  static constexpr int64_t kHidden = 22;

  void SetUp() override { at::manual_seed(7); }
  static Tensor random(at::IntArrayRef shape) { return at::randn(shape, GetParam()); }
  static Tensor wide(const Tensor& x) { return x.to(at::kDouble); }
  static double tolerance() { return GetParam() == at::kDouble ? 1e-12 : 2e-5; }

  const Tensor streams_ = random({kStreams, kNodes, kHidden});
  const Tensor routes_ = random({kNodes, kStreams}).tanh();
};

TEST_P(StreamsTest, RoutesAreTanhOfTheNormedInput) {
  const AltUpRouter router{random({kStreams, kHidden}), random({kHidden}), 1e-6};
  const Tensor input = random({kNodes, kHidden});
  Tensor out = at::empty({kNodes, kStreams}, GetParam());
  altup_route(input, router, out);
  const Tensor x = wide(input);
  const Tensor normed = x * at::rsqrt(x.square().mean(-1, true) + 1e-6) * wide(router.norm);
  EXPECT_LE(max_difference(out, at::tanh(at::matmul(normed, wide(router.weight).t()))),
            tolerance());
}

TEST_P(StreamsTest, PredictionsAreMixturesOfAllStreams) {
  const Tensor coefficients = random({kStreams * kStreams, kStreams});
  Tensor out = at::empty_like(streams_);
  altup_predict(streams_, routes_, coefficients, out);
  const Tensor shares =
      at::matmul(wide(routes_), wide(coefficients).t()).view({kNodes, kStreams, kStreams});
  for (int64_t n = 0; n < kNodes; ++n) {
    const Tensor x = wide(streams_.select(1, n));
    EXPECT_LE(max_difference(out.select(1, n), x + at::matmul(shares[n], x)), tolerance()) << n;
  }
}

TEST_P(StreamsTest, CorrectionsFollowTheActiveStream) {
  const Tensor coefficients = random({kStreams, kStreams});
  const Tensor made = random({kNodes, kHidden});
  Tensor out = streams_.clone();
  altup_correct(made, routes_, coefficients, 1, out);
  const Tensor steps = at::matmul(wide(routes_), wide(coefficients).t()) + 1.0;
  const Tensor innovation = wide(made) - wide(streams_[1]);
  for (int64_t p = 0; p < kStreams; ++p) {
    const Tensor wanted = wide(streams_[p]) + steps.select(1, p).unsqueeze(1) * innovation;
    EXPECT_LE(max_difference(out[p], wanted), tolerance()) << p;
  }
}

TEST_P(StreamsTest, RowsGetTheSizeOfOthers) {
  Tensor values = random({kNodes, kHidden}) * 7.0;
  values[2].zero_();  // the smallest size that is divided by
  const Tensor before = wide(values);
  match_rms(streams_[0], values);
  const auto square = [](const Tensor& x) { return x.square().mean(-1, true); };
  EXPECT_LE(max_difference(values, before * square(wide(streams_[0])).sqrt() /
                                       square(before).clamp_min(1e-5).sqrt()),
            tolerance());
  Tensor mean = at::empty({kNodes, kHidden}, GetParam());
  mean_stream(streams_, mean);
  EXPECT_LE(max_difference(mean, wide(streams_).mean(0)), tolerance());
}

TEST_P(StreamsTest, ARowsBitsDependOnNoOther) {
  const Tensor coefficients = random({kStreams * kStreams, kStreams});
  Tensor all = at::empty_like(streams_);
  altup_predict(streams_, routes_, coefficients, all);
  Tensor one = at::empty({kStreams, 1, kHidden}, GetParam());
  altup_predict(streams_.narrow(1, 3, 1).contiguous(), routes_.narrow(0, 3, 1), coefficients, one);
  EXPECT_TRUE(at::equal(all.select(1, 3), one.select(1, 0)));
}

TEST_P(StreamsTest, WrongShapesAreBugs) {
  Tensor out = at::empty_like(streams_);
  EXPECT_THROW(altup_predict(streams_, routes_, random({kStreams, kStreams}), out), InternalError);
}

TEST_P(StreamsTest, PerLayerInputsAreTwoParts) {
  constexpr int64_t kLayers = 4;
  constexpr int64_t kSize = 6;
  const Tensor context = random({kNodes, kLayers * kSize});
  const Tensor token = random({kNodes, kLayers * kSize});
  const PerLayerOptions options{random({kSize}), 1e-6, 0.3};
  Tensor out = at::empty({kLayers, kNodes, kSize}, GetParam());
  per_layer_inputs(context, token, options, out);
  const auto split = [](const Tensor& x) { return wide(x).view({kNodes, kLayers, kSize}); };
  const Tensor x = split(context) * 0.3;
  const Tensor normed = x * at::rsqrt(x.square().mean(-1, true) + 1e-6) * wide(options.norm);
  const Tensor wanted = ((normed + split(token)) * std::sqrt(0.5)).transpose(0, 1);
  EXPECT_LE(max_difference(out, wanted), tolerance());
}

TEST_P(StreamsTest, GatesAreCutAboveTheirMean) {
  const Tensor before = random({kNodes, 2 * kHidden});
  Tensor gate_up = before.clone();
  cut_gate(gate_up, 0.8);
  const Tensor gate = wide(before.narrow(1, 0, kHidden));
  const Tensor cut = gate.mean(-1, true) + 0.8 * gate.std(-1, /*unbiased=*/false, true);
  EXPECT_LE(max_difference(gate_up.narrow(1, 0, kHidden), at::relu(gate - cut)), tolerance());
  EXPECT_TRUE(at::equal(gate_up.narrow(1, kHidden, kHidden), before.narrow(1, kHidden, kHidden)));
}

INSTANTIATE_TEST_SUITE_P(All, StreamsTest, testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) {
                           return info.param == at::kFloat ? std::string("float32")
                                                           : std::string("float64");
                         });

}  // namespace
}  // namespace specdec
