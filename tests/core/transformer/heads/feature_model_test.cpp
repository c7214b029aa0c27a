// The cached forward of a head against its plain one.
#include "core/transformer/heads/feature_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "core/transformer/heads/head_reference.h"
#include "kv/kv_cache.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

constexpr int64_t kFeatureVocab = 11;
constexpr int64_t kFeatureLength = 10;  // more than a window

struct FeatureCase {
  EagleVersion version;
  LayerStyle style;
  bool after_norm;
  int64_t window;
  at::ScalarType dtype;
};

class FeatureModelTest : public testing::TestWithParam<FeatureCase> {
 protected:
  FeatureModelTest() : target_(tiny_gemma(kFeatureVocab, GetParam().dtype)) {
    at::set_num_threads(1);  // the tensors are tiny; waiting for a second thread costs more
    EagleConfig config = make_eagle_config(GetParam().version, GetParam().style, *target_);
    config.plan.window = GetParam().window;
    config.feature_after_norm = GetParam().after_norm;
    head_ = random_eagle_head(config, {.seed = 5, .dtype = GetParam().dtype});
    model_ = make_eagle_model(head_, target_, paged_kv());
    tokens_ = at::arange(kFeatureLength + 4, at::kLong).mul(7).remainder(kFeatureVocab);
    features_ = target_features(reference_forward(*target_, tokens_.unsqueeze(0)),
                                eagle_capture_layers(config, target_->config))[0];
  }

  ForwardResult feed(int64_t first, int64_t count, const Tensor& features, bool own,
                     std::vector<int64_t> parents = {}) {
    ForwardOptions options;
    options.features = features;
    options.own_features = own;
    return model_->forward(
        {.tokens = tokens_.narrow(0, first, count).to(at::kInt), .parents = std::move(parents)},
        options);
  }

  void commit(int64_t count) {
    std::vector<int64_t> path(static_cast<size_t>(count));
    std::iota(path.begin(), path.end(), 0);
    model_->commit(path);
  }

  double tolerance() const { return GetParam().dtype == at::kDouble ? 1e-10 : 1e-4; }

  std::shared_ptr<TransformerWeights> target_;
  std::shared_ptr<EagleHead> head_;
  std::unique_ptr<FeatureModel> model_;
  Tensor tokens_, features_;
};

TEST_P(FeatureModelTest, CachedEqualsPlain) {
  const HeadOutputs whole =
      eagle_reference(*head_, *target_,
                      {.tokens = tokens_.narrow(0, 1, kFeatureLength).unsqueeze(0),
                       .features = features_.narrow(0, 0, kFeatureLength).unsqueeze(0)});
  int64_t fed = 0;
  for (const int64_t count : {1, 6, 3}) {
    const ForwardResult result = feed(1 + fed, count, features_.narrow(0, fed, count), false);
    EXPECT_LE(max_difference(result.logits, whole.logits[0].narrow(0, fed, count)), tolerance());
    EXPECT_LE(max_difference(result.final_hidden, whole.features[0].narrow(0, fed, count)),
              tolerance());
    commit(count);
    fed += count;
  }
  EXPECT_EQ(model_->length(), kFeatureLength);
}

TEST_P(FeatureModelTest, DraftingFromOwnFeaturesEqualsUnrolling) {
  UnrolledKeys past;
  Tensor features = features_.narrow(0, 0, kFeatureLength).unsqueeze(0);
  ForwardResult drafted = feed(1, kFeatureLength, features[0], false);
  commit(kFeatureLength);
  for (int64_t step = 0; step < 4; ++step) {
    const HeadOutputs out = eagle_reference(
        *head_, *target_,
        {.tokens = tokens_.slice(0, 1 + step, 1 + step + kFeatureLength).unsqueeze(0),
         .features = features,
         .own_features = step > 0,
         .unrolled = &past});
    features = out.features;
    if (step > 0) {
      const Tensor own = drafted.final_hidden.narrow(0, drafted.final_hidden.size(0) - 1, 1);
      drafted = feed(kFeatureLength + step, 1, own, true);
    }
    EXPECT_LE(max_difference(drafted.logits[drafted.logits.size(0) - 1],
                             out.logits[0][kFeatureLength - 1]),
              tolerance())
        << "step " << step;
    if (kFeatureLength + step + 1 == tokens_.size(0)) {
      break;
    }
  }
}

TEST_P(FeatureModelTest, SiblingsDoNotSeeEachOther) {
  const Tensor features = features_.narrow(0, 0, kFeatureLength);
  const Tensor own =
      feed(1, kFeatureLength, features, false).final_hidden.narrow(0, kFeatureLength - 1, 1);
  commit(kFeatureLength);
  const Tensor pair = feed(kFeatureLength + 1, 2, own.repeat({2, 1}), true, {-1, -1}).logits;
  model_->truncate(kFeatureLength);
  for (int64_t i = 0; i < 2; ++i) {
    const Tensor alone = feed(kFeatureLength + 1 + i, 1, own, true).logits;
    EXPECT_LE(max_difference(alone[0], pair[i]), tolerance());
    model_->truncate(kFeatureLength);
  }
}

TEST_P(FeatureModelTest, MisuseIsNamed) {
  EXPECT_THROW(feed(1, 2, features_.narrow(0, 0, 1), false), InternalError);
  EXPECT_THROW(feed(1, 1, at::zeros({1, 5}, features_.options()), false), InternalError);
  ForwardOptions options;
  options.capture_layers = {0};
  const Tensor one = at::tensor({1}, at::kInt);
  EXPECT_THROW(model_->forward({.tokens = one}, options), InternalError);
  EXPECT_THROW(model_->forward({.tokens = one + 11}), Error);
  EXPECT_EQ(model_->pending(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, FeatureModelTest,
    testing::Values(FeatureCase{EagleVersion::kEagle, LayerStyle::kLlama, true, 0, at::kDouble},
                    FeatureCase{EagleVersion::kEagle, LayerStyle::kGemma, false, 4, at::kDouble},
                    FeatureCase{EagleVersion::kEagle3, LayerStyle::kLlama, true, 4, at::kDouble},
                    FeatureCase{EagleVersion::kEagle3, LayerStyle::kGemma, true, 0, at::kDouble},
                    FeatureCase{EagleVersion::kEagle, LayerStyle::kGemma, true, 0, at::kFloat},
                    FeatureCase{EagleVersion::kEagle3, LayerStyle::kLlama, true, 0,
                                at::kBFloat16}));

TEST(FeatureModelLogitsTest, TokensOutsideTheDraftVocabularyCannotBeDrafted) {
  const auto target = tiny_gemma(kFeatureVocab);
  EagleConfig config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, *target);
  config.draft_vocab_size = 3;
  auto head = random_eagle_head(config, {.dtype = at::kDouble});
  head->target_ids = at::tensor({9, 0, 4}, at::kLong);
  const auto model = make_eagle_model(head, target, paged_kv());
  const Tensor features = at::randn({1, head->fc.size(1)}, at::kDouble);
  ForwardOptions options;
  options.features = features;
  const Tensor logits = model->forward({.tokens = at::tensor({5}, at::kInt)}, options).logits[0];
  const HeadInputs inputs{.tokens = at::tensor({5}, at::kLong).unsqueeze(0),
                          .features = features.unsqueeze(0)};
  const Tensor draft = eagle_reference(*head, *target, inputs).logits[0][0];
  EXPECT_EQ(logits.isfinite().sum().item<int64_t>(), 3);
  EXPECT_LE(max_difference(logits.index_select(0, head->target_ids), draft), 1e-10);
}

TEST(FeatureModelMtpTest, EachModuleEqualsItsPlainForward) {
  const auto target = tiny_gemma(kFeatureVocab);
  const auto head = random_mtp_head(*target, 2, {.seed = 3, .dtype = at::kDouble});
  const Tensor tokens = at::arange(kFeatureLength, at::kLong).mul(3).remainder(kFeatureVocab);
  const Tensor features = at::randn({kFeatureLength, 16}, at::kDouble);
  for (const size_t module : {0, 1}) {
    const HeadOutputs plain = mtp_reference(
        *head, *target, module, {.tokens = tokens.unsqueeze(0), .features = features.unsqueeze(0)});
    const auto model = make_mtp_model(head, module, target, paged_kv());
    ForwardOptions options;
    options.features = features;
    const ForwardResult cached = model->forward({.tokens = tokens.to(at::kInt)}, options);
    EXPECT_LE(max_difference(cached.logits, plain.logits[0]), 1e-10);
    EXPECT_LE(max_difference(cached.final_hidden, plain.features[0]), 1e-10);
  }
}

}  // namespace
}  // namespace specdec
