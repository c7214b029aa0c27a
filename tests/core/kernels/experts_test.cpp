#include "core/kernels/experts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "tests/support/max_difference.h"

namespace specdec {
namespace {

class ExpertsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  static constexpr int64_t kExperts = 6;
  static constexpr int64_t kChosen = 3;
  static constexpr int64_t kHidden = 20;
  static constexpr int64_t kSize = 9;

  void SetUp() override {
    at::manual_seed(3);
    for (int64_t e = 0; e < kExperts; ++e) {
      plain_gate_up_.push_back(at::randn({2 * kSize, kHidden}, GetParam()));
      plain_down_.push_back(at::randn({kHidden, kSize}, GetParam()));
      gate_up_.emplace_back(plain_gate_up_.back(), weight_format(GetParam()));
      down_.emplace_back(plain_down_.back(), weight_format(GetParam()));
    }
    scale_ = at::rand({kExperts}, GetParam()) + 0.5;
  }

  Routes routes_of(const Tensor& logits) const {
    Routes routes{at::empty({logits.size(0), kChosen}, at::kInt),
                  at::empty({logits.size(0), kChosen}, GetParam())};
    route(logits, scale_, routes);
    return routes;
  }

  Tensor apply(const Tensor& input, const Routes& routes) {
    const int64_t pairs = routes.experts.numel();
    ExpertBuffers buffers;
    buffers.inputs = at::empty({pairs, kHidden}, GetParam());
    buffers.gate_up = at::empty({pairs, 2 * kSize}, GetParam());
    buffers.gated = at::empty({pairs, kSize}, GetParam());
    buffers.outputs = at::empty({pairs, kHidden}, GetParam());
    Tensor out = at::empty_like(input);
    apply_experts({gate_up_, down_}, input, routes, buffers, out);
    return out;
  }

  double tolerance() const { return GetParam() == at::kDouble ? 1e-12 : 1e-4; }

  std::vector<Tensor> plain_gate_up_, plain_down_;
  std::vector<Linear> gate_up_, down_;
  Tensor scale_;
};

TEST_P(ExpertsTest, RoutesAreTheLikeliestOfTheSoftmax) {
  const Tensor logits = at::randn({11, kExperts}, GetParam());
  const Routes routes = routes_of(logits);
  const auto [probs, index] = logits.to(at::kDouble).softmax(-1).topk(kChosen, -1);
  EXPECT_TRUE(at::equal(routes.experts.to(at::kLong), index));
  const Tensor wanted = probs / probs.sum(-1, true) * scale_.to(at::kDouble).index({index});
  EXPECT_LE(max_difference(routes.weights, wanted), tolerance());
}

TEST_P(ExpertsTest, OfEqualOnesTheLowerNumberGoesFirst) {
  const Tensor logits = at::tensor({1.0, 2.0, 2.0, 0.5, 2.0, 2.0}, GetParam()).unsqueeze(0);
  const Routes routes = routes_of(logits);
  EXPECT_TRUE(at::equal(routes.experts[0], at::tensor({1, 2, 4}, at::kInt)));
}

TEST_P(ExpertsTest, OutputsAreWeightedSums) {
  const Tensor input = at::randn({8, kHidden}, GetParam());
  const Routes routes = routes_of(at::randn({8, kExperts}, GetParam()));
  Tensor wanted = at::zeros({8, kHidden}, at::kDouble);
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t k = 0; k < kChosen; ++k) {
      const auto e = static_cast<size_t>(routes.experts[row][k].item<int32_t>());
      const Tensor x = input[row].to(at::kDouble);
      const auto halves = at::mv(plain_gate_up_[e].to(at::kDouble), x).chunk(2);
      const Tensor out =
          at::mv(plain_down_[e].to(at::kDouble), at::gelu(halves[0], "tanh") * halves[1]);
      wanted[row] += out * routes.weights[row][k].item<double>();
    }
  }
  EXPECT_LE(max_difference(apply(input, routes), wanted), tolerance());
}

TEST_P(ExpertsTest, ATokensBitsDependOnNoOther) {
  Tensor input = at::randn({17, kHidden}, GetParam());
  Tensor logits = at::randn({17, kExperts}, GetParam());
  const Tensor alone = apply(input.narrow(0, 5, 1), routes_of(logits.narrow(0, 5, 1)));
  input[4].fill_(std::numeric_limits<double>::infinity());
  input[6].fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(at::equal(apply(input, routes_of(logits))[5], alone[0]));
}

TEST_P(ExpertsTest, WrongShapesAreBugs) {
  Routes routes{at::empty({2, kExperts + 1}, at::kInt), at::empty({2, kExperts + 1}, GetParam())};
  EXPECT_THROW(route(at::randn({2, kExperts}, GetParam()), scale_, routes), InternalError);
}

INSTANTIATE_TEST_SUITE_P(All, ExpertsTest, testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) {
                           return info.param == at::kFloat ? std::string("float32")
                                                           : std::string("float64");
                         });

}  // namespace
}  // namespace specdec
