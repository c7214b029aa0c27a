// Forwards of a draft that passes adapters of its own: against the plain forward with the adapter
// merged, and what they leave behind. And the writer of adapters.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "core/error.h"
#include "core/transformer/adapters/lora_writer.h"
#include "core/transformer/adapters/merge.h"
#include "core/transformer/reference.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/max_difference.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Weights = std::shared_ptr<const TransformerWeights>;

class DraftAdaptersTest : public testing::Test {
 protected:
  /// A random adapter of the first layers of `base`.
  std::shared_ptr<const LoraAdapter> adapter(const Weights& base, const LoraShape& shape) const {
    save_lora(random_lora(*base, shape, 7), folder_.path() / "lora", at::kDouble);
    return load_lora(folder_.path() / "lora", base);
  }

  TemporaryFolder folder_;
};

/// Logits of a chain of tokens by the first two layers of adapted weights, after tokens that
/// `base` has read: [chain, vocab], by the plain forward.
Tensor plain_draft(const TransformerWeights& base, const TransformerWeights& adapted,
                   TokenSpan text, int64_t kept) {
  const TransformerTensors target = unpack(base);
  const TransformerTensors draft = unpack(adapted);
  const Tensor tokens =
      at::tensor(std::vector<int64_t>(text.begin(), text.end()), at::kLong).unsqueeze(0);
  const auto layer_of = [](const TransformerTensors& of, size_t layer) {
    return LayerReference{.plan = of.plan[layer],
                          .weights = of.layers[layer],
                          .eps = of.config.rms_norm_eps,
                          .dtype = at::kDouble,
                          .matmul_dtype = at::kDouble};
  };
  std::vector<UnrolledKeys> past(2);
  Tensor x = reference_embedding(target, tokens.narrow(1, 0, kept));
  for (size_t layer = 0; layer < 2; ++layer) {
    x = reference_layer(layer_of(target, layer), x, {}, &past[layer]);
  }
  std::vector<Tensor> logits;
  for (int64_t step = 1; step + kept <= tokens.size(1); ++step) {
    x = reference_embedding(target, tokens.narrow(1, step, kept));
    for (size_t layer = 0; layer < 2; ++layer) {
      x = reference_layer(layer_of(draft, layer), x, {}, &past[layer]);
    }
    logits.push_back(reference_head(
        target, reference_norm(x[0][kept - 1], target.final_norm, target.config.rms_norm_eps)));
  }
  return at::stack(logits);
}

TEST_F(DraftAdaptersTest, DraftedRowsPassThemOverTheTargetsKeys) {
  const Weights base = tiny_gemma(11);
  AdapterStack stack(base);
  stack.push({adapter(base, {.rank = 3, .alpha = 6.0, .layers = 2}), 0.5});
  const std::vector<Token> text = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};  // longer than the window
  constexpr int64_t kKept = 8;
  TransformerModel model(base, paged_kv());
  model.prefill_get_last_logits(TokenSpan(text).first(kKept));
  const Tensor drafted = model
                             .forward({.tokens = token_tensor(TokenSpan(text).subspan(kKept))},
                                      {.layers = {0, 1}, .draft_adapters = &stack})
                             .logits;
  const Tensor plain = plain_draft(*base, *merge_adapters(stack), text, kKept);
  EXPECT_LE(max_difference(drafted, plain), 1e-10);
  EXPECT_GT(max_difference(drafted, plain_draft(*base, *base, text, kKept)), 1e-3);
  // One by one they are the same.
  model.truncate(kKept);
  for (int64_t node = 0; node < drafted.size(0); ++node) {
    const TokenSpan token = TokenSpan(text).subspan(static_cast<size_t>(kKept + node), 1);
    const Tensor one =
        model.forward({.tokens = token_tensor(token)}, {.layers = {0, 1}, .draft_adapters = &stack})
            .logits;
    EXPECT_TRUE(at::equal(one[0], drafted[node])) << node;
  }
}

TEST_F(DraftAdaptersTest, TheyAreBesideTheModelsOwnAndLeaveNothingBehind) {
  const Weights base = tiny_gemma(11, at::kFloat);
  const auto lora = adapter(base, {.rank = 2, .layers = 2});
  AdapterStack draft(base);
  draft.push({lora});
  const std::vector<Token> text = {3, 1, 4, 1, 5};
  TransformerModel twice(base, paged_kv());
  twice.push_adapter({lora});
  const std::string key = twice.snapshots()->kv_key();
  const ForwardOptions shallow{.layers = {0, 1}, .draft_adapters = &draft};
  const Tensor drafted = twice.forward({.tokens = token_tensor(text)}, shallow).logits;
  TransformerModel both(base, paged_kv());
  both.push_adapter({lora, 2.0});
  EXPECT_LE(max_difference(drafted,
                           both.forward({.tokens = token_tensor(text)}, {.layers = {0, 1}}).logits),
            1e-4);
  twice.truncate(0);
  TransformerModel once(base, paged_kv());
  once.push_adapter({lora});
  EXPECT_TRUE(at::equal(twice.prefill_get_last_logits(text), once.prefill_get_last_logits(text)));
  EXPECT_EQ(twice.snapshots()->kv_key(), key);
}

TEST_F(DraftAdaptersTest, MisuseIsRefusedAndChangesNothing) {
  const Weights base = tiny_gemma(11);
  AdapterStack stack(base);
  stack.push({adapter(base, {.rank = 2, .layers = 2})});
  TransformerModel model(base, paged_kv());
  TransformerModel other(tiny_gemma(11), paged_kv());
  const TokenBatch batch{.tokens = token_tensor(std::vector<Token>{3, 1})};
  const auto refusal = [&](TransformerModel& whom, const ForwardOptions& options) {
    return error_message<InternalError>([&] { (void)whom.forward(batch, options); });
  };
  EXPECT_THAT(refusal(other, {.layers = {0, 1}, .draft_adapters = &stack}),
              HasSubstr("other weights"));
  EXPECT_THAT(refusal(model, {.draft_adapters = &stack}), HasSubstr("all 3 layers"));
  EXPECT_THAT(refusal(model, {.layers = {0, 1, 2}, .draft_adapters = &stack}),
              HasSubstr("all 3 layers"));
  EXPECT_EQ(model.pending(), 0);
  (void)model.forward(batch, {.layers = {0}, .draft_adapters = &stack});
  const std::vector<int64_t> path = {0};
  EXPECT_THAT(error_message<InternalError>([&] { model.commit(path); }), HasSubstr("some layers"));
}

TEST_F(DraftAdaptersTest, WhatIsWrittenIsReadBack) {
  const Weights base = tiny_gemma(11);
  const LoraShape shape{.rank = 3, .alpha = 6.0, .layers = 2, .modules = {"down_proj", "v_proj"}};
  const LoraTensors written = random_lora(*base, shape, 7);
  const auto read = adapter(base, shape);
  ASSERT_EQ(written.modules.size(), 4U);
  ASSERT_EQ(read->pairs.size(), 4U);
  for (const LoraModule& module : lora_modules(*base, shape)) {
    const auto tensors = std::find_if(written.modules.begin(), written.modules.end(),
                                      [&](const auto& one) { return one.name == module.name; });
    const auto pair =
        std::find_if(read->pairs.begin(), read->pairs.end(), [&](const LoraPair& one) {
          return one.matrix == module.matrix && one.first == module.first;
        });
    ASSERT_NE(tensors, written.modules.end());
    ASSERT_NE(pair, read->pairs.end());
    EXPECT_TRUE(at::equal(pair->a, tensors->a));
    EXPECT_TRUE(at::equal(pair->b, tensors->b * 2.0));
  }
  EXPECT_THAT(error_message<ConfigError>(
                  [&] { (void)lora_modules(*base, {.layers = 2, .modules = {"router"}}); }),
              AllOf(HasSubstr("'router'"), HasSubstr("down_proj, gate_proj")));
}

}  // namespace
}  // namespace specdec
