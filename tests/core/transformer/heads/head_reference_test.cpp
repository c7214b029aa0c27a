// The reference forwards train heads; feature_model_test.cpp holds them against drafting.
#include "core/transformer/heads/head_reference.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <ostream>

#include "tests/support/parameter_name.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

constexpr int64_t kUnrollVocab = 11;
constexpr int64_t kUnrollLength = 12;  // twice the window

struct UnrollCase {
  EagleVersion version;
  LayerStyle style;
  int64_t window;
};

void PrintTo(const UnrollCase& one, std::ostream* out) {
  *out << (one.version == EagleVersion::kEagle ? "eagle" : "eagle3")
       << (one.style == LayerStyle::kLlama ? " llama" : " gemma") << " window " << one.window;
}

class UnrollTest : public testing::TestWithParam<UnrollCase> {
 protected:
  UnrollTest() : target_(tiny_gemma(kUnrollVocab)) {
    at::set_num_threads(1);  // the tensors are tiny; waiting for a second thread costs more
    EagleConfig config = make_eagle_config(GetParam().version, GetParam().style, *target_);
    config.plan.window = GetParam().window;
    head_ = random_eagle_head(config, {.seed = 5, .dtype = at::kDouble, .norm_deviation = 0.3});
    tokens_ = at::arange(kUnrollLength + 4, at::kLong).mul(7).remainder(kUnrollVocab).unsqueeze(0);
    const auto result = reference_forward(unpack(*target_), tokens_);
    features_ = target_features(result, eagle_capture_layers(config, target_->config));
  }

  /// The steps of a head that is fed its own features, of the columns from `first` on.
  std::vector<HeadOutputs> unroll(int64_t steps, int64_t first) const {
    UnrolledKeys past;
    past.first = first;
    std::vector<HeadOutputs> outputs;
    Tensor features = features_.narrow(1, 0, kUnrollLength);
    for (int64_t step = 0; step < steps; ++step) {
      const Tensor tokens = tokens_.narrow(1, 1 + step, kUnrollLength);
      outputs.push_back(eagle_reference(*head_, unpack(*target_),
                                        {.tokens = tokens.slice(1, step > 0 ? first : 0),
                                         .features = features,
                                         .own_features = step > 0,
                                         .unrolled = &past}));
      features = outputs.back().features;
    }
    return outputs;
  }

  std::shared_ptr<TransformerWeights> target_;
  std::shared_ptr<EagleHead> head_;
  Tensor tokens_, features_;
};

TEST_P(UnrollTest, GradientsReachEveryParameter) {
  for (Tensor* parameter : parameters(*head_)) {
    parameter->set_requires_grad(true);
  }
  Tensor loss = at::zeros({}, at::kDouble);
  for (const HeadOutputs& out : unroll(2, 0)) {
    loss = loss + out.logits.pow(2).mean();
  }
  loss.backward();
  for (Tensor* parameter : parameters(*head_)) {
    ASSERT_TRUE(parameter->grad().defined());
    EXPECT_GT(parameter->grad().abs().max().item<double>(), 0.0);
  }
}

TEST_P(UnrollTest, ColumnsBeforeTheFirstWantedAreOnlySeen) {
  constexpr int64_t kFirst = 3;
  const auto all = unroll(3, 0);
  const auto some = unroll(3, kFirst);
  for (size_t step = 0; step < all.size(); ++step) {
    EXPECT_TRUE(at::allclose(some[step].logits, all[step].logits.slice(1, kFirst), 1e-9, 1e-9));
    EXPECT_TRUE(at::allclose(some[step].features, all[step].features.slice(1, kFirst), 1e-9, 1e-9));
  }
}

INSTANTIATE_TEST_SUITE_P(All, UnrollTest,
                         testing::Values(UnrollCase{EagleVersion::kEagle, LayerStyle::kLlama, 0},
                                         UnrollCase{EagleVersion::kEagle, LayerStyle::kGemma, 3},
                                         UnrollCase{EagleVersion::kEagle3, LayerStyle::kLlama, 3},
                                         UnrollCase{EagleVersion::kEagle3, LayerStyle::kGemma, 0}),
                         ParameterName());

}  // namespace
}  // namespace specdec
