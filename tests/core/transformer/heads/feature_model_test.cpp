// The cached forward of a head against its plain one.
#include "core/transformer/heads/feature_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <numeric>
#include <ostream>

#include "core/draft.h"
#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/heads/head_reference.h"
#include "kv/paged_kv.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/temporary_folder.h"
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

void PrintTo(const FeatureCase& one, std::ostream* out) {
  *out << (one.version == EagleVersion::kEagle ? "eagle" : "eagle3")
       << (one.style == LayerStyle::kLlama   ? " llama"
           : one.style == LayerStyle::kQwen3 ? " qwen3"
                                             : " gemma")
       << " window " << one.window << (one.after_norm ? " after_norm " : " ") << one.dtype;
}

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
    features_ = target_features(reference_forward(unpack(*target_), tokens_.unsqueeze(0)),
                                eagle_capture_layers(config, target_->config))[0];
  }

  ForwardResult feed(int64_t first, int64_t count, const Tensor& features, bool own,
                     std::vector<int64_t> parents = {}) {
    return model_->forward({.tokens = tokens_.narrow(0, first, count).to(at::kInt),
                            .parents = std::move(parents),
                            .inputs = {.features = features, .own_features = own}},
                           {.hidden = Hidden::kAll});
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
      eagle_reference(*head_, unpack(*target_),
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
        *head_, unpack(*target_),
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
                    FeatureCase{EagleVersion::kEagle3, LayerStyle::kQwen3, true, 4, at::kDouble},
                    FeatureCase{EagleVersion::kEagle, LayerStyle::kGemma, true, 0, at::kFloat},
                    FeatureCase{EagleVersion::kEagle3, LayerStyle::kLlama, true, 0, at::kBFloat16}),
    ParameterName());

TEST(FeatureModelLogitsTest, TokensOutsideTheDraftVocabularyCannotBeDrafted) {
  const auto target = tiny_gemma(kFeatureVocab);
  EagleConfig config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, *target);
  config.draft_vocab_size = 3;
  auto head = random_eagle_head(config, {.dtype = at::kDouble});
  head->target_ids = at::tensor({9, 0, 4}, at::kLong);
  const auto model = make_eagle_model(head, target, paged_kv());
  const Tensor features = at::randn({1, head->fc.size(1)}, at::kDouble);
  const TokenBatch batch{.tokens = at::tensor({5}, at::kInt), .inputs = {.features = features}};
  const Tensor logits = model->forward(batch).logits[0];
  const HeadInputs inputs{.tokens = at::tensor({5}, at::kLong).unsqueeze(0),
                          .features = features.unsqueeze(0)};
  const Tensor draft = eagle_reference(*head, unpack(*target), inputs).logits[0][0];
  EXPECT_EQ(logits.isfinite().sum().item<int64_t>(), 3);
  EXPECT_LE(max_difference(logits.index_select(0, head->target_ids), draft), 1e-10);
}

/// The norms of speculators' EAGLE-3, each alone and as its trainer sets them.
TEST(FeatureModelNormsTest, CachedEqualsPlain) {
  const auto target = tiny_gemma(kFeatureVocab);
  const Tensor tokens = at::arange(kFeatureLength, at::kLong).mul(3).remainder(kFeatureVocab);
  const auto compare = [&](const std::function<void(EagleConfig&)>& change) {
    EagleConfig config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, *target);
    config.capture_layers = {0, 2};
    change(config);
    const auto head =
        random_eagle_head(config, {.seed = 7, .dtype = at::kDouble, .norm_deviation = 0.5});
    const auto model = make_eagle_model(head, target, paged_kv());
    at::manual_seed(9);  // all compute on the same weights and streams
    const Tensor streams = at::randn({kFeatureLength, 32}, at::kDouble) * 2;
    UnrolledKeys past;
    HeadInputs inputs{.tokens = tokens.unsqueeze(0),
                      .features = streams.unsqueeze(0),
                      .unrolled = config.layers == 1 ? &past : nullptr};
    HeadOutputs plain = eagle_reference(*head, unpack(*target), inputs);
    ForwardResult cached = model->forward(
        {.tokens = tokens.to(at::kInt), .inputs = {.features = streams}}, {.hidden = Hidden::kAll});
    EXPECT_LE(max_difference(cached.logits, plain.logits[0]), 1e-10);
    EXPECT_LE(max_difference(cached.final_hidden, plain.features[0]), 1e-10);
    if (config.layers > 1) {
      return plain.logits;  // the plain forward unrolls one layer only
    }
    inputs.features = plain.features;
    inputs.own_features = true;
    plain = eagle_reference(*head, unpack(*target), inputs);
    const Tensor own = cached.final_hidden.narrow(0, kFeatureLength - 1, 1);
    cached = model->forward({.tokens = tokens.narrow(0, kFeatureLength - 1, 1).to(at::kInt),
                             .inputs = {.features = own, .own_features = true}});
    EXPECT_LE(max_difference(cached.logits[0], plain.logits[0][kFeatureLength - 1]), 1e-10);
    return plain.logits;
  };
  const Tensor published = compare([](EagleConfig&) {});
  for (bool EagleConfig::*flag :
       {&EagleConfig::norm_before_residual, &EagleConfig::norm_before_fc, &EagleConfig::fc_norm,
        &EagleConfig::norm_output, &EagleConfig::own_embedding}) {
    const Tensor changed = compare([&](EagleConfig& config) { config.*flag = true; });
    EXPECT_GT(max_difference(changed, published), 1e-3);
  }
  compare([](EagleConfig& config) {
    config.norm_before_residual = config.norm_before_fc = config.norm_output = true;
  });
  for (const int64_t layers : {2, 3}) {
    const Tensor changed = compare([&](EagleConfig& config) { config.layers = layers; });
    EXPECT_GT(max_difference(changed, published), 1e-3);
  }
}

/// A draft of a head of several layers, step by step, against its plain forward over the text and
/// the drafted tokens: the head's own features stand where the target's are not known.
TEST(FeatureModelLayersTest, DraftsOfSeveralLayersAreThoseOfThePlainForward) {
  const auto target = tiny_gemma(kFeatureVocab);
  EagleConfig config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kQwen3, *target);
  config.layers = 3;
  const TemporaryFolder folder;
  save_eagle_head(*random_eagle_head(config, {.seed = 7, .dtype = at::kDouble}), folder.path(),
                  at::kDouble);
  const auto head = load_eagle_head(folder.path(), EagleVersion::kEagle3, *target);
  ASSERT_EQ(head->later_layers.size(), 2U);
  const auto model = make_eagle_model(head, target, paged_kv());
  Tensor tokens = at::tensor({1, 5, 3, 9}, at::kLong);
  Tensor streams = at::randn({4, head->fc.size(1)}, at::kDouble);
  ForwardResult drafted = model->forward(
      {.tokens = tokens.to(at::kInt), .inputs = {.features = streams}}, {.hidden = Hidden::kAll});
  model->commit(chain_path(4));
  Tensor features = at::linear(streams, head->fc);  // as the first layer reads them
  for (int64_t step = 0; step < 3; ++step) {
    const HeadInputs inputs{
        .tokens = tokens.unsqueeze(0), .features = features.unsqueeze(0), .own_features = true};
    const HeadOutputs plain = eagle_reference(*head, unpack(*target), inputs);
    const int64_t last = drafted.logits.size(0) - 1;
    EXPECT_LE(max_difference(drafted.logits[last], plain.logits[0][3 + step]), 1e-10) << step;
    const Tensor own = drafted.final_hidden.narrow(0, last, 1).clone();
    const Tensor next = plain.logits[0][3 + step].argmax().view({1});
    tokens = at::cat({tokens, next});
    features = at::cat({features, own});
    drafted = model->forward(
        {.tokens = next.to(at::kInt), .inputs = {.features = own, .own_features = true}},
        {.hidden = Hidden::kAll});
  }
}

/// speculators' own forward of an EAGLE-3.1 head: two rounds of drafting.
TEST(FeatureModelGoldenTest, DraftsWhatSpeculatorsDrafts) {
  const Golden golden("eagle31-a");
  const auto target = load_model(test_data("gemma3-a"));
  const auto head = load_eagle_head(golden.folder(), EagleVersion::kEagle3, *target);
  EXPECT_EQ(head->config.capture_layers, (std::vector<int64_t>{0, 1, 3, 4}));
  EXPECT_EQ(head->config.plan.rope.theta, 50000.0);
  const auto model = make_eagle_model(head, target, paged_kv());
  const auto draft = [&](const Tensor& tokens, const Tensor& taps, const std::string& block) {
    ForwardResult result = model->forward(
        {.tokens = tokens.to(at::kInt), .inputs = {.features = taps}}, {.hidden = Hidden::kAll});
    std::vector<int64_t> path(static_cast<size_t>(tokens.size(0)));
    std::iota(path.begin(), path.end(), 0);
    model->commit(path);
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t last = result.logits.size(0) - 1;
      const Tensor logits = result.logits[last];
      EXPECT_LE(max_difference(logits.index_select(0, head->target_ids),
                               golden.tensor(block + "_logits")[i]),
                1e-4)
          << block << " " << i;
      EXPECT_LE(max_difference(result.final_hidden[last], golden.tensor(block + "_hidden")[i]),
                1e-4);
      const Tensor best = logits.argmax().view({1});
      EXPECT_EQ(best.item<int64_t>(), golden.tensor(block + "_tokens")[i].item<int64_t>());
      const Tensor own = result.final_hidden.narrow(0, last, 1);
      result = model->forward(
          {.tokens = best.to(at::kInt), .inputs = {.features = own, .own_features = true}},
          {.hidden = Hidden::kAll});
    }
    model->truncate(model->length());
  };
  const Tensor tokens = golden.tensor("tokens");
  draft(at::cat({tokens.slice(0, 1), golden.tensor("anchor1")}), golden.tensor("taps1"), "block1");
  const auto accepted = golden.tensor("accepted").item<int64_t>();
  draft(at::cat({golden.tensor("block1_tokens").narrow(0, 0, accepted), golden.tensor("anchor2")}),
        golden.tensor("taps2"), "block2");
}

TEST(FeatureModelBiasTest, AttentionBiasReachesTheLayer) {
  const auto target = tiny_gemma(kFeatureVocab);
  const auto head = random_eagle_head(
      make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *target), {.dtype = at::kDouble});
  const auto run = [&](double first_key) {
    const auto model = make_eagle_model(head, target, paged_kv());
    TokenBatch batch{.tokens = at::tensor({1, 2, 3, 4}, at::kInt),
                     .inputs = {.features = at::ones({4, 16}, at::kDouble)}};
    batch.inputs.attention_bias = at::zeros({4, 4});
    batch.inputs.attention_bias.select(1, 0).slice(0, 1).fill_(first_key);
    return model->forward(batch).logits;
  };
  EXPECT_GT(max_difference(run(0.0)[3], run(-INFINITY)[3]), 1e-4);
  EXPECT_LE(max_difference(run(0.0)[0], run(-INFINITY)[0]), 1e-12);
}

/// A head without logits, as if they had run out of memory.
class FailingHead final : public FeatureHead {
 public:
  explicit FailingHead(const HeadLayer& layer) : layer_(layer) {}
  std::vector<HeadLayer> take_layers() override { return {layer_}; }
  int64_t feature_width() const override { return 16; }
  ForwardInputs enter(Ops&, const Tensor&, const Tensor& features, bool) const override {
    return {.embeddings = features};
  }
  Tensor feature(Ops&, const Tensor& output) const override { return output; }
  void logits(Ops&, const Tensor&, const Tensor&, Tensor&) const override {
    throw std::bad_alloc();
  }

 private:
  HeadLayer layer_;
};

TEST(FeatureModelFailureTest, AHeadThatFailsAfterItsLayerChangesNothing) {
  const auto target = tiny_gemma(kFeatureVocab);
  const auto head = random_mtp_head(*target, 1, {.dtype = at::kDouble});
  FeatureModel model(std::make_unique<FailingHead>(head->layers.front()), target, paged_kv(), {});
  const TokenBatch two{.tokens = at::tensor({1, 2}, at::kInt)};
  model.forward(two, {.logits = Logits::kNone});
  EXPECT_EQ(model.pending(), 2);
  EXPECT_THROW(model.forward(two), std::bad_alloc);
  EXPECT_EQ(model.pending(), 2);
}

TEST(FeatureModelMtpTest, EachModuleEqualsItsPlainForward) {
  const auto target = tiny_gemma(kFeatureVocab);
  const auto head = random_mtp_head(*target, 2, {.seed = 3, .dtype = at::kDouble});
  const Tensor tokens = at::arange(kFeatureLength, at::kLong).mul(3).remainder(kFeatureVocab);
  const Tensor features = at::randn({kFeatureLength, 16}, at::kDouble);
  for (const size_t module : {0, 1}) {
    const HeadOutputs plain =
        mtp_reference(*head, unpack(*target), module,
                      {.tokens = tokens.unsqueeze(0), .features = features.unsqueeze(0)});
    const auto model = make_mtp_model(head, module, target, paged_kv());
    const ForwardResult cached =
        model->forward({.tokens = tokens.to(at::kInt), .inputs = {.features = features}},
                       {.hidden = Hidden::kAll});
    EXPECT_LE(max_difference(cached.logits, plain.logits[0]), 1e-10);
    EXPECT_LE(max_difference(cached.final_hidden, plain.features[0]), 1e-10);
  }
}

}  // namespace
}  // namespace specdec
