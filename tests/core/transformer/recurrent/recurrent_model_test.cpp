// Models with recurrent layers: the reference's numbers, and the same bits in whatever pieces and
// trees tokens are read.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "core/error.h"
#include "core/families/gemma/weights.h"
#include "core/formats/safetensors.h"
#include "core/formats/strict_json.h"
#include "core/kernels/forwarding_ops.h"
#include "core/prefix_cached_model.h"
#include "core/transformer/decay_parameter.h"
#include "core/transformer/model_store.h"
#include "core/transformer/reference.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"
#include "tests/support/max_difference.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_recurrent_gemma.h"

namespace specdec {
namespace {

using testing::HasSubstr;

constexpr int64_t kRecurrentVocab = 40;

KvStoreFactory states_every(int64_t every, int64_t checkpoints, int64_t max_bytes = 0) {
  return [=](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    return make_cache(layers, {.dtype = options.dtype,
                               .device = options.device,
                               .page_size = 4,
                               .max_length = options.max_length,
                               .states = {every, checkpoints, max_bytes}});
  };
}

TokenBatch recurrent_batch(const std::vector<Token>& tokens,
                           const std::vector<int64_t>& parents = {}, RowId row = 0) {
  return {.tokens = at::tensor(tokens, at::kInt),
          .rows = std::vector<RowId>(tokens.size(), row),
          .parents = parents};
}

std::vector<int64_t> first_path(int64_t count) {
  std::vector<int64_t> path;
  for (int64_t node = 0; node < count; ++node) {
    path.push_back(node);
  }
  return path;
}

std::vector<Token> recurrent_text(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Token> text(static_cast<size_t>(size));
  std::generate(text.begin(), text.end(),
                [&] { return static_cast<Token>(random() % kRecurrentVocab); });
  return text;
}

class RecurrentGoldenTest : public testing::Test {
 protected:
  Golden golden_{"recurrentgemma-a"};
};

TEST_F(RecurrentGoldenTest, ReferenceMatchesEveryTensor) {
  const auto weights = load_model_tensors(golden_.folder(), {.dtype = at::kFloat});
  EXPECT_EQ(weights->embedding_scale, 4.90625) << "the square root of 24 in bfloat16";
  const ReferenceResult result = reference_forward(*weights, golden_.tensor("tokens").unsqueeze(0));
  const at::Tensor layers = golden_.tensor("layers");
  for (int64_t layer = 0; layer < layers.size(0); ++layer) {
    EXPECT_LE(max_difference(result.layers[static_cast<size_t>(layer)][0], layers[layer]), 1e-4)
        << layer;
  }
  EXPECT_LE(max_difference(result.hidden_pre_norm[0], golden_.tensor("hidden_pre_norm")), 1e-4);
  EXPECT_LE(max_difference(result.hidden[0], golden_.tensor("hidden")), 1e-4);
  EXPECT_LE(max_difference(result.logits[0], golden_.tensor("logits")), 1e-4);
}

TEST_F(RecurrentGoldenTest, ForwardMatches) {
  for (const char* tokens : {"tokens", "tokens2"}) {
    TransformerModel model(load_model(golden_.folder(), {.dtype = at::kFloat}), paged_kv());
    const auto result = model.forward(recurrent_batch(golden_.tokens(tokens)));
    const std::string logits = tokens == std::string("tokens") ? "logits" : "logits2";
    EXPECT_LE(max_difference(result.logits, golden_.tensor(logits)), 1e-4);
  }
}

TEST_F(RecurrentGoldenTest, Float64IsThatOfTheReferenceForward) {
  const LoadOptions options{.dtype = at::kDouble};
  TransformerModel model(load_model(golden_.folder(), options), paged_kv());
  const auto tokens = golden_.tokens("tokens");
  const Tensor wanted = reference_forward(*load_model_tensors(golden_.folder(), options),
                                          golden_.tensor("tokens").unsqueeze(0))
                            .logits[0];
  EXPECT_LE(max_difference(model.forward(recurrent_batch(tokens)).logits, wanted), 1e-12);
}

TEST_F(RecurrentGoldenTest, SaveThenLoadIsTheSame) {
  const auto weights = load_model_tensors(golden_.folder());
  TemporaryFolder folder;
  save_gemma(*weights, read_file(golden_.folder() / "config.json"), folder.path(), at::kBFloat16);
  const SafetensorsFile before(golden_.folder() / "model.safetensors");
  const SafetensorsFile after(folder.path() / "model.safetensors");
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const TensorEntry& entry : before.tensors()) {
    const TensorEntry* same = after.find(entry.name);
    ASSERT_NE(same, nullptr) << entry.name;
    ASSERT_EQ(same->shape, entry.shape) << entry.name;
    const auto values = [](const TensorEntry& tensor) {
      return at::from_blob(const_cast<std::byte*>(tensor.bytes.data()), tensor.shape,
                           at::kBFloat16);
    };
    // A norm is stored less 1, which rounds the smallest numbers.
    EXPECT_LE(max_difference(values(*same), values(entry)), 1e-6) << entry.name;
  }
}

TEST_F(RecurrentGoldenTest, GreedyIsExact) {
  TransformerModel model(load_model(golden_.folder()), paged_kv());  // bfloat16, as stored
  const auto wanted = golden_.tokens("greedy");
  Tensor logits = model.prefill_get_last_logits(golden_.tokens("prompt"));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto token = static_cast<Token>(logits.argmax().item<int64_t>());
    ASSERT_EQ(token, wanted[i]) << i;
    logits = model.decode_get_logits({&token, 1})[0];
  }
}

/// A model and the text of each of its rows, whose logits are compared with those of the text read
/// token by token from the beginning.
class RecurrentHistory {
 public:
  RecurrentHistory(const std::shared_ptr<const TransformerWeights>& weights,
                   const KvStoreFactory& cache, uint32_t seed)
      : random_(seed), model_(weights, cache), plain_(weights, paged_kv()) {
    texts_[0] = {};
  }

  void step() {
    const auto row = std::next(texts_.begin(), below(std::ssize(texts_)))->first;
    switch (below(8)) {
      case 0:
        return truncate(row);
      case 1:
        return change_rows(row);
      default:
        return grow(row);
    }
  }

  const TransformerModel& model() const { return model_; }

 private:
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  /// Logits [vocab] after a text that is decoded token by token.
  Tensor logits_of(const std::vector<Token>& text) {
    Tensor logits = plain_.prefill_get_last_logits(TokenSpan(text).first(1));
    for (size_t i = 1; i < text.size(); ++i) {
      logits = plain_.decode_get_logits(TokenSpan(text).subspan(i, 1))[0];
    }
    return logits;
  }

  void grow(RowId row) {
    std::vector<Token>& text = texts_[row];
    if (text.size() > 30) {
      return truncate(row);
    }
    const int64_t count = 1 + below(6);
    std::vector<Token> tokens;
    std::vector<int64_t> parents;
    std::vector<std::vector<Token>> texts;
    const bool is_chain = below(2) == 0;
    for (int64_t node = 0; node < count; ++node) {
      parents.push_back(is_chain ? node - 1 : below(node + 1) - 1);
      tokens.push_back(static_cast<Token>(below(kRecurrentVocab)));
      texts.push_back(parents.back() < 0 ? text : texts[static_cast<size_t>(parents.back())]);
      texts.back().push_back(tokens.back());
    }
    const Tensor logits = model_.forward(recurrent_batch(tokens, parents, row)).logits;
    for (int64_t node = 0; node < count; ++node) {
      ASSERT_TRUE(at::equal(logits[node], logits_of(texts[static_cast<size_t>(node)])))
          << "node " << node << " of row " << row;
    }
    std::vector<int64_t> path;
    for (int64_t node = count - 1; node >= 0; node = parents[static_cast<size_t>(node)]) {
      path.insert(path.begin(), node);
    }
    text = texts.back();
    model_.commit(path, row);
  }

  void truncate(RowId row) {
    std::vector<Token>& text = texts_[row];
    const int64_t wanted = below(std::ssize(text) + 1);
    const int64_t length = model_.rewindable_to(wanted, row);
    ASSERT_LE(length, wanted);
    if (length < wanted && wanted < std::ssize(text)) {
      EXPECT_THROW(model_.truncate(wanted, row), Error);
      EXPECT_EQ(model_.length(row), std::ssize(text)) << "nothing changes";
    }
    model_.truncate(length, row);
    text.resize(static_cast<size_t>(length));
  }

  void change_rows(RowId row) {
    if (texts_.size() == 3 && row != 0) {
      model_.close(row);
      texts_.erase(row);
    } else if (texts_.size() < 3) {
      const int64_t length = model_.rewindable_to(below(std::ssize(texts_[row]) + 1), row);
      const RowId branch = model_.fork(row, length);
      texts_[branch] = {texts_[row].begin(), texts_[row].begin() + length};
    }
  }

  std::mt19937 random_;
  TransformerModel model_;
  TransformerModel plain_;
  std::map<RowId, std::vector<Token>> texts_;
};

/// Central differences of the loss by two numbers of each tensor.
TEST(RecurrentModelTest, GradientsOfTheReferenceAreItsDifferences) {
  at::set_num_threads(1);
  TransformerTensors model = unpack(*tiny_recurrent_gemma(kRecurrentVocab));
  const Tensor tokens = at::tensor(recurrent_text(18, 1), at::kLong).view({2, 9});
  const Tensor factors = at::sin(at::arange(18 * kRecurrentVocab, at::kDouble));
  const auto loss = [&](const Tensor& decay) {
    model.layers[1].recurrence.decay = decay_of_parameter(decay);
    return (reference_forward(model, tokens).logits.flatten() * factors).sum();
  };
  RecurrenceTensors& recurrence = model.layers[1].recurrence;
  Tensor decay = parameter_of_decay(recurrence.decay);
  std::vector<Tensor> leaves = {model.layers[1].qkv,         recurrence.convolution,
                                recurrence.convolution_bias, recurrence.input_gate,
                                recurrence.input_gate_bias,  recurrence.decay_gate,
                                recurrence.decay_gate_bias,  decay};
  for (Tensor& leaf : leaves) {
    leaf.set_requires_grad(true);
  }
  loss(decay).backward();
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor values = leaves[i].view(-1);
    for (const int64_t place : {int64_t{3}, values.size(0) - 2}) {
      constexpr double kStep = 1e-5;
      const double before = values[place].item<double>();
      const auto moved = [&](double step) {
        values[place] = before + step;
        return loss(decay).item<double>();
      };
      const double difference = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      values[place] = before;
      const double gradient = leaves[i].grad().view(-1)[place].item<double>();
      EXPECT_NE(gradient, 0.0) << i;
      EXPECT_NEAR(gradient, difference, 1e-6 * (1 + std::abs(difference))) << i;
    }
  }
}

TEST(RecurrentModelTest, RandomHistoriesHaveTheBitsOfDecodingAlone) {
  const c10::InferenceMode guard;
  at::set_num_threads(1);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const auto weights = tiny_recurrent_gemma(kRecurrentVocab, dtype);
    for (uint32_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      RecurrentHistory history(weights, states_every(1 + seed, 3 + seed), seed);
      for (int step = 0; step < 40 && !testing::Test::HasFatalFailure(); ++step) {
        history.step();
      }
    }
  }
}

TEST(RecurrentModelTest, ThreadsChangeNoBit) {
  const int threads = at::get_num_threads();
  const auto weights = tiny_recurrent_gemma(kRecurrentVocab, at::kFloat);
  std::vector<Tensor> logits;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    TransformerModel model(weights, paged_kv());
    logits.push_back(model.forward(recurrent_batch(recurrent_text(200, 1))).logits.clone());
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(logits[0], logits[1]));
}

TEST(RecurrentModelTest, CheckpointsAreTheNewestOfTheirLengths) {
  TransformerModel model(tiny_recurrent_gemma(kRecurrentVocab, at::kFloat), states_every(4, 2));
  (void)model.prefill_get_last_logits(recurrent_text(18, 1));
  EXPECT_EQ(model.rewindable_to(18), 18);
  EXPECT_EQ(model.rewindable_to(17), 16);
  EXPECT_EQ(model.rewindable_to(15), 12);
  EXPECT_EQ(model.rewindable_to(11), 0) << "of 8 and 4 there are none any more";
  const std::string error = error_message<Error>([&] { model.truncate(15); });
  EXPECT_THAT(error, HasSubstr("cannot be cut to 15"));
  EXPECT_THAT(error, HasSubstr("but to 12"));
  EXPECT_THAT(error, HasSubstr("state_every"));
  EXPECT_EQ(model.length(), 18);
  EXPECT_THAT(error_message<Error>([&] { model.fork(0, 15); }), HasSubstr("state_every"));
  const KvStatistics before = model.cache().statistics();
  EXPECT_EQ(before.states, 3) << "of the last token and two checkpoints";
  EXPECT_EQ(before.state_bytes, 4 * 4 * 24 * 4) << "layers, width, channels, bytes";
  const RowId branch = model.fork(0, 16);
  EXPECT_EQ(model.cache().statistics().states, 3) << "shared";
  model.close(branch);
  model.truncate(12);
  EXPECT_EQ(model.cache().statistics().states, 1);
  model.truncate(0);
  EXPECT_EQ(model.cache().statistics().states, 0);
}

TEST(RecurrentModelTest, StatesHaveABudget) {
  const int64_t bytes = 4 * 4 * 24 * 4;
  TransformerModel model(tiny_recurrent_gemma(kRecurrentVocab, at::kFloat),
                         states_every(64, 2, 10 * bytes));
  (void)model.prefill_get_last_logits(recurrent_text(10, 1));
  EXPECT_THAT(error_message<Error>([&] { model.forward(recurrent_batch(recurrent_text(10, 2))); }),
              HasSubstr("holds 10 states"));
  EXPECT_EQ(model.pending(), 0) << "nothing changes";
  (void)model.forward(recurrent_batch(recurrent_text(9, 2)));
  model.commit(first_path(9));
}

TEST(RecurrentModelTest, ChatsReadAgainFromTheNearestCheckpoint) {
  const auto weights = tiny_recurrent_gemma(kRecurrentVocab, at::kFloat);
  TransformerModel plain(weights, paged_kv());
  PrefixCachedModel cached(std::make_unique<TransformerModel>(weights, states_every(4, 8)));
  std::vector<Token> text = recurrent_text(23, 1);
  (void)cached.prefill_get_last_logits(text);
  for (const size_t changed : {21U, 14U, 9U, 3U}) {
    text[changed] = (text[changed] + 1) % kRecurrentVocab;
    const Tensor logits = cached.prefill_get_last_logits(text).clone();
    EXPECT_TRUE(at::equal(logits, plain.prefill_get_last_logits(text))) << changed;
  }
}

/// Ops that fail once, at a product.
class FailingOps final : public ForwardingOps {
 public:
  FailingOps() : ForwardingOps(cpu_ops()) {}
  void fail_in(int64_t products) { left_ = products; }
  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    if (left_ >= 0 && left_-- == 0) {
      throw Error("failed");
    }
    ForwardingOps::linear(weight, input, out);
  }

 private:
  int64_t left_ = -1;
};

TEST(RecurrentModelTest, AChatThatFailsHoldsWhatItsModelHolds) {
  const auto weights = tiny_recurrent_gemma(kRecurrentVocab, at::kFloat);
  TransformerModel plain(weights, paged_kv());
  const auto ops = std::make_shared<FailingOps>();
  PrefixCachedModel cached(std::make_unique<TransformerModel>(weights, states_every(4, 8),
                                                              TransformerOptions{.ops = ops}));
  std::vector<Token> text = recurrent_text(23, 1);
  (void)cached.prefill_get_last_logits(text);
  text[14] = (text[14] + 1) % kRecurrentVocab;
  ops->fail_in(3);  // while tokens 12 and 13 are read again
  EXPECT_THROW((void)cached.prefill_get_last_logits(text), Error);
  const Tensor logits = cached.prefill_get_last_logits(text).clone();
  EXPECT_TRUE(at::equal(logits, plain.prefill_get_last_logits(text)));
}

TEST(RecurrentModelTest, ACacheWithWindowSlackHasTheSameBits) {
  const auto weights = tiny_recurrent_gemma(kRecurrentVocab, at::kFloat);
  const auto text = recurrent_text(60, 3);
  TransformerModel plain(weights, paged_kv());
  const Tensor wanted = plain.forward(recurrent_batch(text)).logits.clone();
  const auto cache = [](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    return make_cache(layers, {.dtype = options.dtype,
                               .page_size = 4,
                               .max_length = options.max_length,
                               .window_slack = 8,
                               .states = {.every = 8, .most_checkpoints = 8}});
  };
  TransformerModel slack(weights, cache);
  for (size_t begin = 0; begin < text.size(); begin += 5) {
    const std::vector<Token> part(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  text.begin() + static_cast<std::ptrdiff_t>(begin + 5));
    const Tensor logits = slack.forward(recurrent_batch(part)).logits;
    EXPECT_TRUE(at::equal(logits, wanted.narrow(0, static_cast<int64_t>(begin), 5)));
    slack.commit(first_path(5));
  }
  EXPECT_EQ(slack.rewindable_to(59), 56);
  EXPECT_EQ(slack.rewindable_to(50), 0) << "a checkpoint of 48 is there, its window's keys are not";
}

TEST(RecurrentModelTest, RecurrentLayersAloneAreAModelToo) {
  TransformerModel model(tiny_recurrent_gemma(kRecurrentVocab, at::kFloat), paged_kv(),
                         {.active_layers = 2});
  const auto text = recurrent_text(9, 1);
  const Tensor whole = model.forward(recurrent_batch(text)).logits.clone();
  EXPECT_TRUE(at::equal(model.prefill_get_last_logits(TokenSpan(text).first(8)), whole[7]));
  EXPECT_TRUE(at::equal(model.decode_get_logits(TokenSpan(text).subspan(8))[0], whole[8]));
}

TEST(RecurrentModelTest, WhatIsNotSupportedSaysSo) {
  const auto weights = tiny_recurrent_gemma(kRecurrentVocab, at::kFloat);
  TransformerModel model(weights, paged_kv());
  EXPECT_EQ(model.snapshots(), nullptr);
  const auto layers = cache_layers(weights->plan);
  const auto cache = make_cache(layers, {.max_length = 8});
  EXPECT_THAT(error_message<Error>([&] { cache->snapshot(0); }), HasSubstr("recurrent layers"));
  EXPECT_THAT(error_message<Error>([&] { cache->key_values(0, 0); }),
              HasSubstr("layer 0 is recurrent"));
}

}  // namespace
}  // namespace specdec
