// Prompts given as embeddings, and attention that hides tokens.
#include "core/transformer/forward_checks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "core/open_row.h"
#include "core/prefix_cached_model.h"
#include "core/row_view.h"
#include "core/transformer/transformer_model.h"
#include "core/uncached_model.h"
#include "kv/paged_kv.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kManyTokens = 600;  // fed in two pieces

std::vector<Token> many_tokens(Token step = 7) {
  std::vector<Token> tokens;
  for (Token i = 0; i < kManyTokens; ++i) {
    tokens.push_back(i * step % 11);
  }
  return tokens;
}

/// A tiny model of a kind of tiny_gemma4; "" = Gemma 3.
std::shared_ptr<const TransformerWeights> tiny(const std::string& kind, at::ScalarType dtype) {
  return kind.empty() ? tiny_gemma(11, dtype) : tiny_gemma4(kind, 11, dtype);
}

void expect_equal(const ForwardResult& found, const ForwardResult& wanted) {
  EXPECT_TRUE(at::equal(found.logits, wanted.logits));
  EXPECT_TRUE(at::equal(found.final_hidden, wanted.final_hidden));
  ASSERT_EQ(found.captured.size(), wanted.captured.size());
  for (size_t i = 0; i < found.captured.size(); ++i) {
    EXPECT_TRUE(at::equal(found.captured[i], wanted.captured[i]));
  }
}

TEST(EmbeddedPromptTest, EmbeddingsOfTokensGiveTheirResultsBitForBit) {
  for (const std::string kind : {"", "dense", "moe"}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      TransformerModel model(tiny(kind, dtype), paged_kv(), {.max_length = kManyTokens + 2});
      const std::vector<Token> prompt = many_tokens();
      const ForwardOptions options{.capture_layers = {1}, .hidden = Hidden::kAll};
      const Tensor embeddings = model.internals()->embed(token_tensor(prompt));
      const ForwardResult wanted = model.prefill(prompt, options);
      const auto keys = model.internals()->key_values(2, 0);
      const Tensor next = model.decode_get_logits(std::vector<Token>{3});
      expect_equal(model.prefill_from_embeddings(embeddings, options), wanted);
      EXPECT_EQ(model.length(), kManyTokens);
      EXPECT_TRUE(at::equal(model.internals()->key_values(2, 0).first, keys.first));
      EXPECT_TRUE(at::equal(model.internals()->key_values(2, 0).second, keys.second));
      EXPECT_TRUE(at::equal(model.decode_get_logits(std::vector<Token>{3}), next));
      const ForwardResult none = model.prefill_from_embeddings(
          embeddings, {.logits = Logits::kNone, .hidden = Hidden::kAll});
      EXPECT_FALSE(none.logits.defined()) << "hidden states only";
      EXPECT_TRUE(at::equal(none.final_hidden, wanted.final_hidden));
    }
  }
}

TEST(EmbeddedPromptTest, LayersWithInputsOfTheirOwnNeedTokensBeside) {
  for (const std::string kind : {"e", "3n"}) {
    TransformerModel model(tiny(kind, at::kFloat), paged_kv(), {.max_length = kManyTokens});
    const std::vector<Token> prompt = many_tokens();
    const ForwardOptions options{.hidden = Hidden::kAll};
    const Tensor embeddings = model.internals()->embed(token_tensor(prompt));
    const ForwardResult wanted = model.prefill(prompt, options);
    EXPECT_THAT([&] { model.prefill_from_embeddings(embeddings); },
                ThrowsMessage<Error>(HasSubstr("give tokens beside them")));
    EXPECT_EQ(model.length(), kManyTokens) << "nothing has changed";
    EXPECT_THAT([&] { model.forward({.tokens = {}, .inputs = {.embeddings = embeddings}}); },
                ThrowsMessage<Error>(HasSubstr("give tokens beside them")));
    expect_equal(model.prefill(prompt, options, {.embeddings = embeddings}), wanted);
    const std::vector<Token> others(prompt.size(), 2);
    EXPECT_FALSE(
        at::equal(model.prefill(others, options, {.embeddings = embeddings}).logits, wanted.logits))
        << "the layers look the tokens up";
  }
}

TEST(EmbeddedPromptTest, MisuseIsNamed) {
  TransformerModel model(tiny("", at::kFloat), paged_kv(), {.max_length = 8});
  const std::vector<Token> kept = {1, 2};
  model.prefill_get_last_logits(kept);
  EXPECT_THAT(
      [&] {
        model.prefill_from_embeddings(at::zeros({0, 16}));
      },
      ThrowsMessage<Error>(HasSubstr("the prompt is empty")));
  EXPECT_THAT(
      [&] {
        model.prefill_from_embeddings(at::zeros({9, 16}));
      },
      ThrowsMessage<Error>(HasSubstr("9 tokens, but the model holds at most 8")));
  EXPECT_THROW(model.prefill_from_embeddings(at::zeros({2, 15})), InternalError);
  EXPECT_THROW(model.prefill_from_embeddings(at::zeros({2, 16}, at::kInt)), InternalError);
  EXPECT_THROW(model.prefill_from_embeddings({}), InternalError);
  EXPECT_EQ(model.length(), 2) << "nothing has changed";
  UncachedModel uncached(model);
  EXPECT_THAT(
      [&] {
        uncached.prefill_from_embeddings(at::zeros({2, 16}));
      },
      ThrowsMessage<Error>(HasSubstr("takes tokens alone")));
}

TEST(EmbeddedPromptTest, RunsInAnyRow) {
  TransformerModel model(tiny("", at::kFloat), paged_kv());
  const std::vector<Token> prompt = {3, 1, 4, 1, 5};
  const Tensor wanted = model.prefill_get_last_logits(prompt);
  const OpenRow row(model);
  RowView view(model, row.name());
  const Tensor embeddings = model.internals()->embed(token_tensor(prompt));
  EXPECT_TRUE(at::equal(view.prefill_from_embeddings(embeddings).logits[0], wanted));
  EXPECT_EQ(view.length(), 5);
}

TEST(EmbeddedPromptTest, AreNoPrefixOfTheirTokens) {
  const auto weights = tiny("", at::kFloat);
  TransformerModel plain(weights, paged_kv());
  PrefixCachedModel cached(std::make_unique<TransformerModel>(weights, paged_kv()));
  const std::vector<Token> prompt = {3, 1, 4, 1, 5};
  const Tensor wanted = plain.prefill_get_last_logits(prompt);
  ForwardInputs inputs{.embeddings = at::ones({5, 16})};
  EXPECT_FALSE(at::equal(cached.prefill(prompt, {}, inputs).logits[0], wanted));
  EXPECT_TRUE(at::equal(cached.prefill_get_last_logits(prompt), wanted));
  EXPECT_TRUE(at::equal(cached.prefill_get_last_logits(prompt), wanted));
  EXPECT_EQ(cached.reused(), 4);
  inputs = {.attention_bias = at::randn({5, 5})};
  EXPECT_FALSE(at::equal(cached.prefill(prompt, {}, inputs).logits[0], wanted));
  EXPECT_TRUE(at::equal(cached.prefill_get_last_logits(prompt), wanted));
  const Tensor soft = at::ones({5, 16});
  EXPECT_TRUE(at::equal(cached.prefill_from_embeddings(soft).logits,
                        plain.prefill_from_embeddings(soft).logits));
  EXPECT_EQ(cached.length(), 5);
  EXPECT_TRUE(at::equal(cached.prefill_get_last_logits(prompt), wanted));
  EXPECT_EQ(cached.reused(), 0);
}

TEST(AttentionMaskTest, WhatIsHiddenHasNoInfluence) {
  // The first 300 tokens, a whole chunk of attention among them, are hidden from the others.
  constexpr int64_t kHidden = 300;
  const auto weights = tiny("", at::kFloat);
  const auto after = [&](const std::vector<Token>& text, bool hides) {
    TransformerModel model(weights, paged_kv(), {.max_length = kManyTokens});
    ForwardInputs inputs;
    if (hides) {
      inputs.attention_bias = at::zeros({kManyTokens, kHidden});
      inputs.attention_bias.narrow(0, kHidden, kManyTokens - kHidden).fill_(-INFINITY);
    }
    return model.prefill(text, {.hidden = Hidden::kAll}, inputs)
        .final_hidden.narrow(0, kHidden, kManyTokens - kHidden);
  };
  const std::vector<Token> text = many_tokens();
  std::vector<Token> other = many_tokens(3);
  std::copy(text.begin() + kHidden, text.end(), other.begin() + kHidden);
  EXPECT_TRUE(at::equal(after(text, true), after(other, true)));
  EXPECT_FALSE(at::equal(after(text, false), after(other, false)));
  EXPECT_FALSE(at::equal(after(text, true), after(text, false)));
}

TEST(AttentionMaskTest, MisuseIsNamed) {
  TransformerModel model(tiny("", at::kFloat), paged_kv());
  model.prefill_get_last_logits(std::vector<Token>{1, 2, 3});
  model.forward({.tokens = at::tensor({4}, at::kInt)});
  const auto run = [&](int64_t node, int64_t column, float value) {
    TokenBatch batch{.tokens = at::tensor({5, 6, 7}, at::kInt), .parents = {0, 0, 2}};
    batch.inputs.attention_bias = at::zeros({3, 9});
    batch.inputs.attention_bias[node][column] = value;
    model.forward(batch);
  };
  EXPECT_THAT([&] { run(1, 0, NAN); },
              ThrowsMessage<Error>(HasSubstr("attention_bias of node 1 for column 0 is nan")));
  EXPECT_THAT([&] { run(0, 2, INFINITY); }, ThrowsMessage<Error>(HasSubstr("column 2 is inf")));
  EXPECT_THAT([&] { run(2, 6, -INFINITY); },
              ThrowsMessage<Error>(HasSubstr("hides node 2 from itself (column 6 is -inf)")));
  EXPECT_EQ(model.pending(), 1) << "nothing has changed";
  run(2, 5, -INFINITY);
  EXPECT_EQ(model.pending(), 4);
}

TEST(AttentionMaskTest, NodesOfSeveralRowsHaveColumnsOfTheirOwn) {
  TransformerModel model(tiny("", at::kFloat), paged_kv());
  model.prefill_get_last_logits(std::vector<Token>{1, 2, 3});
  const RowId other = model.open();
  TokenBatch batch{.tokens = at::tensor({5, 6, 7}, at::kInt), .rows = {0, other, other}};
  batch.inputs.attention_bias = at::zeros({3, 4});
  batch.inputs.attention_bias[2][1] = -INFINITY;
  EXPECT_THAT([&] { model.forward(batch); },
              ThrowsMessage<Error>(HasSubstr("hides node 2 from itself")));
  batch.inputs.attention_bias[2][1] = 0;
  batch.inputs.attention_bias[2][0] = -INFINITY;
  EXPECT_NO_THROW(model.forward(batch));
}

}  // namespace
}  // namespace specdec
