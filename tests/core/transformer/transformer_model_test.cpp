#include "core/transformer/transformer_model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <new>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/families/gemma/config.h"
#include "core/families/model.h"
#include "core/row_view.h"
#include "core/transformer/random_weights.h"
#include "core/transformer/reference.h"
#include "kv/forwarding_store.h"
#include "kv/paged_kv.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

std::shared_ptr<const TransformerWeights> load_float(const std::filesystem::path& folder) {
  LoadOptions options;
  options.dtype = at::kFloat;
  return load_model(folder, options);
}

TokenBatch batch_of(const std::vector<Token>& tokens) {
  TokenBatch batch;
  batch.tokens = at::tensor(tokens, at::kInt);
  return batch;
}

void commit_all(LanguageModel& model) {
  std::vector<int64_t> path(static_cast<size_t>(model.pending()));
  std::iota(path.begin(), path.end(), 0);
  model.commit(path);
}

class GoldenForwardTest : public testing::TestWithParam<std::string> {
 protected:
  Golden golden_{GetParam()};
  TransformerModel model_{load_float(golden_.folder()), paged_kv()};

  /// Tolerance of logits; Gemma 3n's activations are larger.
  static double tolerance() { return GetParam() == "gemma3n-a" ? 5e-4 : 1e-4; }
};

TEST_P(GoldenForwardTest, WholeMatches) {
  const ForwardResult result =
      model_.forward(batch_of(golden_.tokens("tokens")), {.hidden = Hidden::kAll});
  EXPECT_LE(max_difference(result.logits, golden_.tensor("logits")), tolerance());
  EXPECT_LE(max_difference(result.final_hidden, golden_.tensor("hidden")), tolerance());
}

TEST_P(GoldenForwardTest, ChunksMatch) {
  const auto tokens = golden_.tokens("tokens");
  const at::Tensor wanted = golden_.tensor("logits");
  for (const size_t chunk : {size_t{1}, size_t{3}, size_t{7}, size_t{16}}) {
    model_.truncate(0);
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const size_t end = std::min(tokens.size(), begin + chunk);
      const std::vector<Token> part(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                    tokens.begin() + static_cast<std::ptrdiff_t>(end));
      const auto logits = model_.forward(batch_of(part)).logits;
      commit_all(model_);
      const auto expected = wanted.slice(0, static_cast<int64_t>(begin), static_cast<int64_t>(end));
      ASSERT_LE(max_difference(logits, expected), tolerance())
          << "chunks of " << chunk << " at " << begin;
    }
  }
}

TEST_P(GoldenForwardTest, GreedyIsExact) {
  const auto wanted = golden_.tokens("greedy");
  const bool has_logits = golden_.has("greedy_logits");
  const at::Tensor wanted_logits = has_logits ? golden_.tensor("greedy_logits") : Tensor();
  Tensor logits = model_.prefill_get_last_logits(golden_.tokens("prompt"));
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (has_logits) {
      ASSERT_LE(max_difference(logits, wanted_logits[static_cast<int64_t>(i)]), tolerance()) << i;
    }
    const auto token = static_cast<Token>(logits.argmax().item<int64_t>());
    ASSERT_EQ(token, wanted[i]) << i;
    logits = model_.decode_get_logits({&token, 1})[0];
  }
}

TEST_P(GoldenForwardTest, CapturedLayersMatch) {
  ForwardOptions options;
  at::Tensor layers = golden_.tensor("layers");
  if (layers.dim() == 4) {  // AltUp's streams, of which the active one is captured
    layers = layers.select(1, model_.weights().plan.front().altup.active);
  }
  for (int64_t layer = layers.size(0) - 1; layer >= 0; --layer) {
    options.capture_layers.push_back(layer);
  }
  const auto result = model_.forward(batch_of(golden_.tokens("tokens")), options);
  for (size_t i = 0; i < options.capture_layers.size(); ++i) {
    EXPECT_LE(max_difference(result.captured[i], layers[options.capture_layers[i]]), 5e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenForwardTest, testing::ValuesIn(all_golden_names()),
                         ParameterName());

class TransformerModelTest : public testing::Test {
 protected:
  Golden golden_{"gemma3-a"};
  std::shared_ptr<const TransformerWeights> weights_ = load_float(golden_.folder());
  TransformerModel model_{weights_, paged_kv()};
  std::vector<Token> tokens_ = golden_.tokens("tokens");
};

TEST_F(TransformerModelTest, StoredBfloat16HasTheLogitsOfItsValues) {
  const Golden golden("gemma3-bf16-sharded-a");
  const Tensor tokens = golden.tensor("tokens").to(at::kInt);
  const auto logits = [&tokens](const std::shared_ptr<const TransformerWeights>& weights) {
    return TransformerModel(weights, paged_kv()).forward({.tokens = tokens}).logits;
  };
  const auto stored = load_model(golden.folder());
  EXPECT_EQ(stored->weight_dtype, at::kBFloat16);
  EXPECT_TRUE(at::equal(logits(stored), logits(load_float(golden.folder()))));
  EXPECT_LE(max_difference(logits(stored), golden.tensor("logits")), 1e-4);
}

TEST_F(TransformerModelTest, Int8HasTheLogitsOfItsOwnWeights) {
  const auto weights = load_model(golden_.folder(), {.dtype = at::kChar});
  EXPECT_EQ(weights->weight_dtype, at::kChar);
  EXPECT_EQ(weights->compute_dtype(), at::kFloat);
  const auto logits = TransformerModel(weights, paged_kv()).forward(batch_of(tokens_)).logits;
  const auto tokens = golden_.tensor("tokens").unsqueeze(0);
  EXPECT_LE(max_difference(logits, reference_forward(unpack(*weights), tokens).logits[0]), 1e-4);
  EXPECT_LE(max_difference(logits, golden_.tensor("logits")), 0.5);
  EXPECT_GT(max_difference(logits, golden_.tensor("logits")), 1e-4) << "it should have rounded";
}

TEST_F(TransformerModelTest, Float64IsTheReference) {
  LoadOptions options;
  options.dtype = at::kDouble;
  const auto weights = load_model(golden_.folder(), options);
  TransformerModel model(weights, paged_kv());
  const auto logits = model.forward(batch_of(tokens_)).logits;
  const auto wanted =
      reference_forward(unpack(*weights), golden_.tensor("tokens").unsqueeze(0)).logits[0];
  EXPECT_EQ(logits.scalar_type(), at::kDouble);
  EXPECT_LE(max_difference(logits, wanted), 1e-11);
}

TEST_F(TransformerModelTest, EarlyExitIsAShorterModel) {
  auto shorter = std::make_shared<TransformerWeights>(*weights_);
  shorter->layers.resize(3);
  shorter->plan.resize(3);
  ForwardOptions options;
  options.layers = {0, 1, 2};
  const auto early = model_.forward(batch_of(tokens_), options).logits;
  const auto wanted =
      reference_forward(unpack(*shorter), golden_.tensor("tokens").unsqueeze(0)).logits[0];
  EXPECT_LE(max_difference(early, wanted), 1e-4);
  EXPECT_THROW(commit_all(model_), InternalError);
  EXPECT_THROW(model_.forward(batch_of({5})), InternalError);
  model_.truncate(0);
  EXPECT_LE(max_difference(model_.forward(batch_of(tokens_)).logits, golden_.tensor("logits")),
            1e-4);
}

TEST_F(TransformerModelTest, SkippedLayersAreAModelWithoutThem) {
  auto shorter = std::make_shared<TransformerWeights>(*weights_);
  shorter->layers.erase(shorter->layers.begin() + 1);
  shorter->plan.erase(shorter->plan.begin() + 1);
  ForwardOptions options;
  options.layers = {0};
  for (int64_t layer = 2; layer < model_.internals()->num_layers(); ++layer) {
    options.layers.push_back(layer);
  }
  const auto wanted =
      reference_forward(unpack(*shorter), golden_.tensor("tokens").unsqueeze(0)).logits[0];
  EXPECT_LE(max_difference(model_.forward(batch_of(tokens_), options).logits, wanted), 1e-4);
  EXPECT_THROW(commit_all(model_), InternalError);
  EXPECT_THROW(model_.forward(batch_of({5})), InternalError) << "all layers";
  EXPECT_THROW(model_.forward(batch_of({5}), {.layers = {0, 1}}), InternalError) << "other layers";
  EXPECT_NO_THROW(model_.forward(batch_of({5}), {.layers = {0, 2}})) << "fewer layers";
  model_.truncate(0);
  EXPECT_THROW(model_.forward(batch_of({5}), {.layers = {1, 1}}), InternalError);
  EXPECT_THROW(model_.forward(batch_of({5}), {.layers = {2, 0}}), InternalError);
  EXPECT_THROW(model_.forward(batch_of({5}), {.layers = {0, 99}}), InternalError);
  EXPECT_THROW(model_.forward(batch_of({5}), {.layers = {-1}}), InternalError);
}

TEST_F(TransformerModelTest, EmbeddingsInsteadOfTokens) {
  const TokenBatch batch{.tokens = {}, .inputs = {.embeddings = golden_.tensor("embed")}};
  EXPECT_LE(max_difference(model_.forward(batch).logits, golden_.tensor("logits")), 1e-4);
}

TEST_F(TransformerModelTest, InternalsEmbedAndHead) {
  const Internals& internals = *model_.internals();
  EXPECT_LE(max_difference(internals.embed(at::tensor(tokens_, at::kInt)), golden_.tensor("embed")),
            1e-5);
  EXPECT_LE(max_difference(internals.head(golden_.tensor("hidden")), golden_.tensor("logits")),
            1e-4);
}

TEST_F(TransformerModelTest, AttentionBiasHidesAToken) {
  // A bias of minus infinity on column 0 equals never having seen the first token's key.
  TokenBatch batch = batch_of(tokens_);
  const auto n = static_cast<int64_t>(tokens_.size());
  batch.inputs.attention_bias = at::zeros({n, n});
  const auto zero = model_.forward(batch).logits;
  EXPECT_LE(max_difference(zero, golden_.tensor("logits")), 1e-4);
  model_.truncate(0);
  batch.inputs.attention_bias.select(1, 0).slice(0, 1).fill_(-INFINITY);
  const auto hidden = model_.forward(batch).logits;
  auto changed = tokens_;
  changed[0] = tokens_[0] == 7 ? 8 : 7;
  model_.truncate(0);
  batch.tokens = batch_of(changed).tokens;
  const auto other = model_.forward(batch).logits;
  EXPECT_LE(max_difference(hidden.slice(0, 1), other.slice(0, 1)), 1e-6);
  EXPECT_GT(max_difference(hidden.slice(0, 1), zero.slice(0, 1)), 1e-3);
}

TEST_F(TransformerModelTest, LogitsLastAndNone) {
  ForwardOptions options;
  options.logits = Logits::kLast;
  TokenBatch batch = batch_of({tokens_[0], tokens_[1], tokens_[2], tokens_[0]});
  batch.rows = {0, 0, 0, model_.open()};
  const auto last = model_.forward(batch, options).logits;
  ASSERT_EQ(last.size(0), 2);
  EXPECT_LE(max_difference(last[0], golden_.tensor("logits")[2]), 1e-4);
  EXPECT_LE(max_difference(last[1], golden_.tensor("logits")[0]), 1e-4);
  model_.truncate(0);
  options.logits = Logits::kNone;
  EXPECT_FALSE(model_.forward(batch_of(tokens_), options).logits.defined());
}

TEST_F(TransformerModelTest, ResultsOutliveKeep) {
  const ForwardResult result = model_.forward(batch_of(tokens_));
  const auto copy = result.logits.clone();
  commit_all(model_);
  model_.forward(batch_of(tokens_));
  EXPECT_TRUE(at::equal(result.logits, copy));
}

TEST_F(TransformerModelTest, MisuseIsNamed) {
  const Token token = 3;
  EXPECT_THROW(model_.decode_get_logits({&token, 1}), InternalError);
  EXPECT_THROW(model_.truncate(1), InternalError);
  EXPECT_THROW(model_.prefill_get_last_logits({}), Error);
  const std::vector<Token> outside = {3, 512};
  try {
    model_.prefill_get_last_logits(outside);
    FAIL() << "a token outside the vocabulary was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("512"), std::string::npos) << error.what();
  }
  const std::vector<Token> too_long(513, 3);
  try {
    model_.prefill_get_last_logits(too_long);
    FAIL() << "an over-long prompt was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("513"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("512"), std::string::npos) << error.what();
  }
  TokenBatch bad = batch_of({3, 4});
  bad.parents = {-1, 5};
  EXPECT_THROW(model_.forward(bad), InternalError);
  EXPECT_EQ(model_.length(), 0);
  EXPECT_EQ(model_.pending(), 0);
  EXPECT_LE(max_difference(model_.forward(batch_of(tokens_)).logits, golden_.tensor("logits")),
            1e-4);
}

/// A paged store whose views fail after a number of calls, as an allocation would.
class FailingStore final : public ForwardingStore {
 public:
  FailingStore(std::unique_ptr<KvStore> store, int64_t& views_left)
      : ForwardingStore(std::move(store)), views_left_(views_left) {}

  KvView view(int64_t layer) const override {
    if (views_left_-- == 0) {
      throw std::bad_alloc();
    }
    return ForwardingStore::view(layer);
  }

 private:
  int64_t& views_left_;
};

KvStoreFactory failing_kv(int64_t& views_left) {
  return [&views_left](std::vector<LayerKv> layers, const KvStoreOptions& options) {
    return std::make_unique<FailingStore>(paged_kv(4)(std::move(layers), options), views_left);
  };
}

TEST_F(TransformerModelTest, AViewsInternalsAndSnapshotsAreThoseOfItsRow) {
  model_.prefill_get_last_logits({tokens_.data(), 5});
  RowView view(model_, model_.fork(0, 3));
  EXPECT_EQ(view.internals()->kept_length(0), 3);
  EXPECT_TRUE(at::equal(view.internals()->key_values(1, 0).first,
                        model_.internals()->key_values(1, 0).first.narrow(1, 0, 3)));
  const auto snapshot = view.snapshots()->kv_snapshot();
  EXPECT_EQ(snapshot->length(), 3);
  view.truncate(0);
  view.snapshots()->kv_restore(*snapshot, 2);
  EXPECT_EQ(view.length(), 2);
  EXPECT_EQ(model_.length(), 5);
  model_.truncate(2);
  EXPECT_TRUE(at::equal(view.forward(batch_of({7})).logits, model_.forward(batch_of({7})).logits));
}

constexpr int64_t kViews = 1000000;

TEST_F(TransformerModelTest, AForwardThatFailsChangesNothing) {
  int64_t views_left = kViews;
  TransformerModel model(weights_, failing_kv(views_left));
  for (TransformerModel* fed : {&model, &model_}) {
    fed->prefill_get_last_logits({tokens_.data(), 5});
    fed->forward(batch_of({7, 8}));
    fed->open();
  }
  TokenBatch more = batch_of({9, 10, 11});
  more.rows = {0, 0, 1};
  more.parents = {0, -1, -1};
  for (const int64_t layer : {0, 3}) {
    views_left = layer;
    EXPECT_THROW(model.forward(more), std::bad_alloc);
    EXPECT_EQ(model.length(), 5);
    EXPECT_EQ(model.pending(), 2);
    EXPECT_EQ(model.pending(1), 0);
  }
  views_left = kViews;
  TokenBatch biased = more;
  biased.inputs.attention_bias = at::zeros({3, 9}, at::kDouble);  // should be float32
  EXPECT_THROW(model.forward(biased), InternalError);
  biased.inputs.attention_bias = at::zeros({2, 9});
  EXPECT_THROW(model.forward(biased), InternalError);
  EXPECT_EQ(model.pending(), 2);
  EXPECT_TRUE(at::equal(model.forward(more).logits, model_.forward(more).logits));
  const std::vector<int64_t> path = {0, 2};
  model.commit(path);
  model_.commit(path);
  EXPECT_TRUE(at::equal(model.forward(batch_of({3})).logits, model_.forward(batch_of({3})).logits));
}

TEST_F(TransformerModelTest, UndoForgetsTheNewestForwardOnly) {
  model_.forward(batch_of({tokens_[0], tokens_[1]}));
  model_.forward(batch_of({9}));
  model_.undo_forward();
  EXPECT_EQ(model_.pending(), 2);
  EXPECT_LE(
      max_difference(model_.forward(batch_of({tokens_[2]})).logits[0], golden_.tensor("logits")[2]),
      1e-4);
}

constexpr int64_t kLongPrompt = 600;  // is fed in two pieces

class LongPromptTest : public testing::Test {
 protected:
  ForwardResult in_one(const ForwardInputs& inputs) {
    TransformerModel model(weights_, paged_kv(), {.max_length = kLongPrompt});
    TokenBatch batch = batch_of(prompt_);
    batch.inputs = inputs;
    return model.forward(batch, {.hidden = Hidden::kAll});
  }
  ForwardResult in_pieces(const ForwardInputs& inputs) {
    return model_.prefill(prompt_, {.hidden = Hidden::kAll}, inputs);
  }

  std::shared_ptr<const TransformerWeights> weights_ = tiny_gemma(11);
  TransformerModel model_{weights_, paged_kv(), {.max_length = kLongPrompt}};
  std::vector<Token> prompt_ = [] {
    std::vector<Token> tokens;
    for (Token i = 0; i < kLongPrompt; ++i) {
      tokens.push_back(i * 7 % 11);
    }
    return tokens;
  }();
};

TEST_F(LongPromptTest, PiecesGetTheirOwnInputs) {
  at::manual_seed(5);
  ForwardInputs inputs;
  inputs.attention_bias = at::randn({kLongPrompt, kLongPrompt}) * 3;
  EXPECT_LE(max_difference(in_pieces(inputs).final_hidden, in_one(inputs).final_hidden), 1e-10);
  inputs.embeddings = at::randn({kLongPrompt, 16}, at::kDouble);
  EXPECT_LE(max_difference(in_pieces(inputs).final_hidden, in_one(inputs).final_hidden), 1e-10);
}

TEST_F(LongPromptTest, InputsOfAnotherLengthAreRefusedBeforeAnythingChanges) {
  model_.prefill_get_last_logits({prompt_.data(), 3});
  ForwardInputs inputs;
  inputs.attention_bias = at::zeros({kLongPrompt - 1, 4});
  EXPECT_THROW(model_.prefill(prompt_, {}, inputs), InternalError);
  EXPECT_THROW(model_.extend({prompt_.data(), 3}, {}, inputs), InternalError);
  EXPECT_EQ(model_.length(), 3);
}

TEST_F(LongPromptTest, APieceThatFailsTakesTheOthersBack) {
  int64_t views_left = kViews;
  TransformerModel model(weights_, failing_kv(views_left), {.max_length = 2 * kLongPrompt});
  model.prefill_get_last_logits({prompt_.data(), 3});
  views_left = 4;  // of 3 layers: in the second piece
  EXPECT_THROW(model.extend_get_last_logits(prompt_), std::bad_alloc);
  EXPECT_EQ(model.length(), 3);
  EXPECT_EQ(model.pending(), 0);
}

TEST_F(TransformerModelTest, LogitsThatAreKeptStayAndOthersMemoryIsUsedAgain) {
  TransformerModel model(weights_, paged_kv());
  const std::vector<Token> fed = {2, 3, 4, 5};
  const ForwardResult prompt = model.prefill(fed, {});
  const Tensor copy = prompt.logits.clone();
  std::set<const void*> places;
  ForwardResult step;
  for (const Token token : {3, 4, 5, 6, 7, 8}) {
    Tensor before = step.logits;
    step = model.extend({&token, 1}, {});
    places.insert(step.logits.const_data_ptr());
    EXPECT_FALSE(before.defined() && before.is_alias_of(step.logits));
  }
  EXPECT_TRUE(at::equal(prompt.logits, copy));
  EXPECT_EQ(places.count(prompt.logits.const_data_ptr()), 0);
  const Tensor row = step.logits[0];  // a view keeps them too
  const Tensor kept = row.clone();
  step = {};
  for (const Token token : {3, 4, 5}) {
    (void)model.extend({&token, 1}, {});
  }
  EXPECT_TRUE(at::equal(row, kept));
}

TEST_F(TransformerModelTest, StepsReuseTheMemoryOfTheirLogits) {
  TransformerModel model(weights_, paged_kv());
  model.prefill_get_last_logits(std::vector<Token>{2, 3, 4, 5});
  std::set<const void*> places;
  ForwardResult step;
  for (Token token = 3; token < 13; ++token) {
    step = model.extend({&token, 1}, {});
    places.insert(step.logits.const_data_ptr());
  }
  EXPECT_EQ(places.size(), 2);
}

TEST_F(TransformerModelTest, EncodersAreRefused) {
  ModelDescription model = load_gemma_config(golden_.folder());
  model.config.bidirectional = true;
  EXPECT_THROW((TransformerModel{pack(*random_model(model)), paged_kv()}), Error);
}

}  // namespace
}  // namespace specdec
