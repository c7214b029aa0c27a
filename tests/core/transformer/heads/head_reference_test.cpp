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

  std::shared_ptr<TransformerWeights> target_;
  std::shared_ptr<EagleHead> head_;
  Tensor tokens_, features_;
};

TEST_P(UnrollTest, GradientsReachEveryParameter) {
  for (Tensor* parameter : parameters(*head_)) {
    parameter->set_requires_grad(true);
  }
  UnrolledKeys past;
  Tensor features = features_.narrow(1, 0, kUnrollLength);
  Tensor loss = at::zeros({}, at::kDouble);
  for (int64_t step = 0; step < 2; ++step) {
    const HeadOutputs out = eagle_reference(*head_, unpack(*target_),
                                            {.tokens = tokens_.narrow(1, 1 + step, kUnrollLength),
                                             .features = features,
                                             .own_features = step > 0,
                                             .unrolled = &past});
    loss = loss + out.logits.pow(2).mean();
    features = out.features;
  }
  loss.backward();
  for (Tensor* parameter : parameters(*head_)) {
    ASSERT_TRUE(parameter->grad().defined());
    EXPECT_GT(parameter->grad().abs().max().item<double>(), 0.0);
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
