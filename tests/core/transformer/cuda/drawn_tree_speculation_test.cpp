// Speculation over trees that a model draws on its device, run on the CPU
// (core/kernels/cuda/emulation): graphs change nothing, and damaged logits are the host's error.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/row_view.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/self_drafter.h"
#include "decoders/speculative.h"
#include "tests/core/transformer/cuda/drawn_tree_bench.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Ops of a head whose logits become damaged from the third row on.
class DamagedTreeOps final : public ForwardingOps {
 public:
  explicit DamagedTreeOps(double number) : ForwardingOps(cuda_ops(at::kCPU)), number_(number) {}
  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ForwardingOps::linear(weight, input, out);
    if (out.size(1) == 40 && ++heads_ > 2) {
      out.fill_(number_);
    }
  }

 private:
  double number_;
  int64_t heads_ = 0;
};

TEST(CudaDrawnTreeSpeculationTest, DamagedLogitsAreTheHostsError) {
  for (const double damaged : std::vector<double>{std::nan(""), -INFINITY}) {
    const auto ops = std::make_shared<DamagedTreeOps>(damaged);
    const auto model = tree_model(1, {.ops = ops});
    TreeCase tree = ranked_tree();
    EXPECT_FALSE(model->draw_tree(std::vector<Token>{4}, tree.request()).has_value());
    EXPECT_EQ(model->pending(), 0);
    tree.sampling = {.temperature = 1.0};
    tree.draws = true;
    EXPECT_FALSE(model->draw_tree(std::vector<Token>{4}, tree.request()).has_value());
    EXPECT_EQ(model->pending(), 0);

    const auto target = tree_model();
    SpeculativeDecoding strategy(
        *target, std::make_unique<DraftModelDrafter>(std::make_unique<RowView>(*model, 0)),
        verifier_of(DeviceRule::kRejection), tree_shape());
    EXPECT_THAT(
        [&] {
          generate_chains(strategy, {1, 2}, {.temperature = 1.0}, 5);
        },
        ThrowsMessage<Error>(HasSubstr("logit")));
  }
}

/// Damage within the graph of a draft, which is recorded once drafts have come to three.
TEST(CudaDrawnTreeSpeculationTest, DamagedGraphsAreTheHostsError) {
  for (const bool is_self : {false, true}) {
    SCOPED_TRACE(is_self);
    const auto ops = std::make_shared<DraftGraphOps>(std::nan(""));
    const auto target = tree_model(1, is_self ? TransformerOptions{.ops = ops} : emulated());
    std::unique_ptr<Drafter> drafter =
        std::make_unique<SelfDrafter>(*target, SelfDrafterOptions{.layers = 1});
    if (!is_self) {
      drafter = std::make_unique<DraftModelDrafter>(tree_model(1, {.ops = ops}));
    }
    SpeculativeDecoding strategy(*target, std::move(drafter), verifier_of(DeviceRule::kNone),
                                 tree_shape());
    EXPECT_THAT(
        [&] {
          for (int request = 0; request < 4; ++request) {
            generate_chains(strategy, kChainPrompts.front(), {}, 8);
          }
        },
        ThrowsMessage<Error>(HasSubstr("logit")));
    EXPECT_TRUE(ops->is_damaged());
  }
  const auto ops = std::make_shared<DraftGraphOps>(std::nan(""));
  const auto model = tree_model(1, {.ops = ops});
  for (Token draft = 0; draft < 5; ++draft) {
    const auto drawn = model->draw_tree(std::vector<Token>{draft}, ranked_tree().request());
    EXPECT_EQ(drawn.has_value(), draft < 2) << draft;
    model->truncate(0);
  }
  EXPECT_TRUE(ops->is_damaged());
}

/// Speculation whose trees are drawn by another model, or the target's first layer.
Generation generate_trees(std::optional<uint64_t> draft_seed, int64_t graphs,
                          const SamplingParams& sampling, std::shared_ptr<Ops> ops) {
  TransformerOptions options{.ops = std::move(ops), .graphs = graphs};
  const auto target = tree_model(1, options);
  const auto draft = tree_model(draft_seed.value_or(1), options);
  std::unique_ptr<Drafter> drafter =
      std::make_unique<SelfDrafter>(*target, SelfDrafterOptions{.layers = 1});
  if (draft_seed) {
    drafter = std::make_unique<DraftModelDrafter>(std::make_unique<RowView>(*draft, draft->open()));
  }
  SpeculativeDecoding strategy(
      *target, std::move(drafter),
      verifier_of(sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection), tree_shape());
  generate_chains(strategy, kChainPrompts.front(), sampling, 30);
  return generate_chains(strategy, kChainPrompts.back(), sampling, 12);
}

/// The draft model is like the target, so whole paths are accepted: their nodes stay in its cache.
TEST(CudaDrawnTreeSpeculationTest, AcceptedNodesAreNotReadAgain) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  const auto target = tree_model();
  SpeculativeDecoding strategy(
      *target, std::make_unique<DraftModelDrafter>(tree_model(1, {.ops = ops, .graphs = 0})),
      verifier_of(DeviceRule::kNone),
      std::make_unique<StaticTreeShape>(
          tree_of_paths({{0}, {1}, {0, 0}, {0, 1}, {0, 0, 0}, {0, 0, 0, 0}})));
  const Generation generation = generate_chains(strategy, kChainPrompts.front(), {}, 12);
  int64_t accepted = 0;
  for (const StepStatistics& step : generation.steps) {
    accepted += step.accepted;
  }
  EXPECT_GE(accepted, 8);
  // A forward of the prompt; then of the newest token or two, or of a level.
  std::vector<std::string> embeddings = ops->take_calls();
  std::erase_if(embeddings, [](const std::string& call) { return call.find("embed_rows") != 0; });
  ASSERT_FALSE(embeddings.empty());
  EXPECT_EQ(embeddings.front(), "embed_rows [4] -> [4, 16]");
  embeddings.erase(embeddings.begin());
  EXPECT_THAT(embeddings, testing::Each(testing::AnyOf("embed_rows [1] -> [1, 16]",
                                                       "embed_rows [2] -> [2, 16]")));
}

TEST(CudaDrawnTreeSpeculationTest, GraphsChangeNoGeneration) {
  struct Case {
    std::optional<uint64_t> draft_seed;
    SamplingParams sampling;
  };
  const std::vector<Case> cases = {// few: the emulation is slow
                                   {1, {.temperature = 1.0}},
                                   {2, {}},
                                   {std::nullopt, {.temperature = 1.3, .top_k = 2}}};
  int64_t accepted = 0;
  for (const auto& [seed, sampling] : cases) {
    SCOPED_TRACE(testing::Message() << seed.value_or(0) << " at " << sampling.temperature);
    const auto ops = std::make_shared<DraftGraphOps>();
    const Generation graphed = generate_trees(seed, 32, sampling, ops);
    accepted += expect_the_hosts_drafts(graphed, generate_trees(seed, 0, sampling, ops));
    EXPECT_GT(ops->replays(), 0);
  }
  EXPECT_GT(accepted, 5);
}

}  // namespace
}  // namespace specdec
