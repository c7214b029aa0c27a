#include "core/transformer/heads/drafting_functions.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kv/paged_kv.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

constexpr int64_t kDraftingVocab = 11;

TEST(DraftingFunctionsTest, TheHostDrawsBesideACpu) {
  const auto target = tiny_gemma(kDraftingVocab, at::kFloat);
  const MedusaHead two = new_medusa_head({.num_heads = 2}, unpack(*target), at::kFloat);
  const MedusaHeads heads = drafting_heads(std::make_shared<MedusaModel>(two, target));
  EXPECT_EQ(heads.count, 2);
  EXPECT_EQ(heads.hidden_size, target->config.hidden_size);
  EXPECT_EQ(heads.vocab_size, kDraftingVocab);
  EXPECT_EQ(heads.logits(at::zeros({1, heads.hidden_size}), 1).logits.size(1), kDraftingVocab);
  EXPECT_FALSE(heads.device_logits || heads.draw_chain || heads.draw_tree);

  const auto head = random_assistant(
      *target, {.hidden_size = 8, .intermediate_size = 12, .heads = 2, .layers = 2, .clusters = 0});
  const AssistantSteps steps =
      drafting_steps(std::make_shared<AssistantModel>(head, AssistantOptions{.target = target}));
  EXPECT_EQ(steps.hidden_size, target->config.hidden_size);
  EXPECT_EQ(steps.vocab_size, kDraftingVocab);
  EXPECT_TRUE(steps.step);
  EXPECT_FALSE(steps.device_step || steps.draw_chain || steps.draw_tree);
}

TEST(DraftingFunctionsTest, AnAssistantSaysWhatItReadsBeyondTheWindows) {
  const auto target = tiny_gemma(kDraftingVocab, at::kFloat);
  const auto head = random_assistant(
      *target, {.hidden_size = 8, .intermediate_size = 12, .heads = 2, .layers = 2, .clusters = 0});
  int64_t window = 0;
  for (const LayerPlan& layer : head->weights.plan) {
    window = std::max(window, layer.window);
  }
  ASSERT_GT(window, 0);
  const auto older = [&](int64_t sliding_keys) {
    return drafting_steps(std::make_shared<AssistantModel>(
                              head, AssistantOptions{.sliding_keys = sliding_keys}))
        .older_keys;
  };
  EXPECT_EQ(older(0), 0);
  EXPECT_EQ(older(window - 1), 0);
  EXPECT_EQ(older(window + 1), 0) << "as transformers gives them";
  EXPECT_EQ(older(window + 4), 3);
}

TEST(DraftingFunctionsTest, SeveralModulesDrawTogether) {
  const auto target = tiny_gemma(kDraftingVocab, at::kFloat);
  const auto head = random_mtp_head(*target, 3, {.seed = 7});
  for (const int64_t count : {1, 2, 3}) {
    const MtpModules modules = make_mtp_modules(head, count, target, paged_kv());
    EXPECT_EQ(std::ssize(modules.models), count);
    EXPECT_EQ(modules.drafts != nullptr, count > 1);
    const ModuleDrawing drawing = drawing_of(modules.drafts);
    EXPECT_EQ(drawing.can_draw_chain && drawing.can_draw_tree, count > 1);
    EXPECT_EQ(drawing.draw_chain && drawing.draw_tree, count > 1);
    for (const auto& can_draw : {drawing.can_draw_chain, drawing.can_draw_tree}) {
      EXPECT_FALSE(can_draw && can_draw(1, 2)) << "a CPU draws nothing";
    }
  }
}

}  // namespace
}  // namespace specdec
