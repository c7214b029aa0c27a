#include "decoders/drafters/medusa.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "core/error.h"
#include "core/transformer/heads/drafting_functions.h"
#include "core/transformer/reference.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/shapes/draft_growth.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/target_table.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Two children for each node, level by level: Medusa's Cartesian tree.
class CartesianShape final : public DraftShape {
 public:
  explicit CartesianShape(int64_t depth) : depth_(depth) {}
  DraftLimits next(int64_t) override { return {.tokens = 62, .depth = depth_, .branches = 2}; }

  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override {
    DraftGrowth growth(context, distribution, siblings);
    std::vector<int64_t> level = {0};
    while (!level.empty()) {
      growth.expand(level);
      std::vector<int64_t> below;
      for (const int64_t node : level) {
        const std::vector<int64_t> children = growth.add_children(node, 2);
        below.insert(below.end(), children.begin(), children.end());
      }
      level = below;
    }
    return std::move(growth).finish();
  }

 private:
  int64_t depth_;
};

/// Heads that know something: the target's own head over slightly turned hidden states.
std::shared_ptr<const MedusaHead> some_heads(const TransformerWeights& target, bool shared,
                                             int64_t heads = 3) {
  auto head = std::make_shared<MedusaHead>(
      new_medusa_head({.num_heads = heads, .num_layers = 1, .share_lm_head = shared},
                      unpack(target), target.weight_dtype));
  RandomTensors random({.seed = 4, .dtype = target.weight_dtype});
  for (auto& blocks : head->blocks) {
    blocks[0].weight = random.matrix(16, 16);
    blocks[0].bias = random.matrix(1, 16)[0];
  }
  return head;
}

MedusaHeads heads_on(const std::shared_ptr<const TransformerWeights>& target,
                     const std::shared_ptr<const MedusaHead>& head) {
  return drafting_heads(std::make_shared<MedusaModel>(*head, target));
}

struct Case {
  std::string name;
  bool shared;
  bool sample;
  bool tree;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class MedusaDistributionTest : public testing::TestWithParam<Case> {
 protected:
  static std::unique_ptr<SpeculativeDecoding> decoding(TransformerModel& target,
                                                       std::unique_ptr<Verifier> verifier) {
    auto drafter = std::make_unique<MedusaDrafter>(
        heads_on(std::make_shared<TransformerWeights>(target.weights()),
                 some_heads(target.weights(), GetParam().shared)),
        MedusaOptions{.sample = GetParam().sample});
    std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(2);
    if (GetParam().tree) {
      shape = std::make_unique<CartesianShape>(2);
    }
    return std::make_unique<SpeculativeDecoding>(target, std::move(drafter), std::move(verifier),
                                                 std::move(shape));
  }
};

TEST_P(MedusaDistributionTest, TheOutputHasTheDistributionOfTheTarget) {
  const auto weights = tiny_gemma(3);
  TransformerModel target(weights, paged_kv());
  const Task task{{0, 1, 2, 1}, {.temperature = 0.9}, {.max_new_tokens = 4}};
  const SequenceDistribution distribution =
      exact_distribution(*decoding(target, std::make_unique<RejectionVerifier>()), task);
  EXPECT_LT(max_difference(distribution, reference_distribution(target_table(weights), task)),
            1e-12);
}

TEST_P(MedusaDistributionTest, GreedyTokensAreTheTargets) {
  const auto weights = tiny_gemma(11);
  TransformerModel target(weights, paged_kv());
  TransformerModel plain_target(weights, paged_kv());
  const Task task{{3, 1, 4, 1, 5}, {}, {.max_new_tokens = 60}};
  CounterRandomness random(1);
  const auto speculative = decoding(target, std::make_unique<ExactMatchVerifier>());
  const auto tokens = speculative->generate(task.request(random)).tokens;
  EXPECT_EQ(tokens, AutoregressiveDecoding(plain_target).generate(task.request(random)).tokens);
}

INSTANTIATE_TEST_SUITE_P(All, MedusaDistributionTest,
                         testing::Values(Case{"chain", false, true, false},
                                         Case{"chain_best", false, false, false},
                                         Case{"tree", false, true, true},
                                         Case{"tree_best_shared", true, false, true}),
                         [](const auto& info) { return info.param.name; });

/// Keeps the drafts' logits.
class Recorder final : public DraftShape {
 public:
  explicit Recorder(std::vector<Tensor>& seen) : seen_(seen) {}
  DraftLimits next(int64_t) override { return {.tokens = 9, .depth = 9, .branches = 1}; }
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override {
    depths_.push_back(context.max_depth);
    DraftGrowth growth(context, distribution, siblings);
    for (int64_t node = 0; node < context.max_depth; ++node) {
      growth.expand({&node, 1});
      seen_.push_back(growth.logits(node).unsqueeze(0).clone());
      growth.add_children(node, 1);
    }
    return std::move(growth).finish();
  }
  bool branches() const override { return false; }
  const std::vector<int64_t>& depths() const { return depths_; }

 private:
  std::vector<Tensor>& seen_;
  std::vector<int64_t> depths_;
};

TEST(MedusaTest, EachDepthIsItsHeadOnTheNewestHiddenState) {
  const auto weights = tiny_gemma(11);
  for (const bool shared : {false, true}) {
    const auto head = some_heads(*weights, shared);
    TransformerModel target(weights, paged_kv());
    std::vector<Tensor> seen;
    SpeculativeDecoding decoding(target, std::make_unique<MedusaDrafter>(heads_on(weights, head)),
                                 std::make_unique<ExactMatchVerifier>(),
                                 std::make_unique<Recorder>(seen));
    const Task task{{3, 1, 4, 1, 5}, {}, {.max_new_tokens = 12}};
    CounterRandomness random(1);
    const Generation generation = decoding.generate(task.request(random));
    // What training computes, at every step's newest evaluated token.
    std::vector<int64_t> text(task.prompt.begin(), task.prompt.end());
    text.insert(text.end(), generation.tokens.begin(), generation.tokens.end());
    const auto hidden =
        reference_forward(unpack(*weights), at::tensor(text).unsqueeze(0)).hidden[0];
    auto committed = static_cast<int64_t>(task.prompt.size());
    size_t at = 0;
    for (const StepStatistics& step : generation.steps) {
      for (int64_t depth = 0; depth < step.drafted; ++depth, ++at) {
        const auto x = medusa_hidden(*head, hidden[committed - 1], depth);
        const auto wanted = shared ? reference_head(unpack(*weights), x)
                                   : at::matmul(head->outputs[static_cast<size_t>(depth)], x);
        ASSERT_LT(at, seen.size());
        EXPECT_LT((seen[at][0] - wanted).abs().max().item<double>(), 1e-10) << committed;
      }
      committed += step.committed;
    }
    EXPECT_EQ(at, seen.size());
    EXPECT_GT(generation.steps.size(), 1U);
  }
}

TEST(MedusaTest, DraftsAreAsDeepAsThereAreHeads) {
  const auto weights = tiny_gemma(11);
  TransformerModel target(weights, paged_kv());
  SpeculativeDecoding decoding(
      target, std::make_unique<MedusaDrafter>(heads_on(weights, some_heads(*weights, false, 2))),
      std::make_unique<ExactMatchVerifier>(), std::make_unique<FixedDraftLength>(5));
  const Task task{{3, 1, 4}, {}, {.max_new_tokens = 10}};
  CounterRandomness random(1);
  for (const StepStatistics& step : decoding.generate(task.request(random)).steps) {
    EXPECT_LE(step.drafted, 2);
  }
}

TEST(MedusaTest, RefusesATargetThatItDoesNotFit) {
  const auto weights = tiny_gemma(11);
  FakeModel fake(11, random_table(11, 1));
  const MedusaDrafter drafter(heads_on(weights, some_heads(*weights, true)));
  EXPECT_THAT([&] { drafter.check(fake); },
              ThrowsMessage<ConfigError>(HasSubstr("last hidden state")));
  TransformerModel other(tiny_gemma(7), paged_kv());
  EXPECT_THAT([&] { drafter.check(other); },
              ThrowsMessage<ConfigError>(HasSubstr("another model")));
}

}  // namespace
}  // namespace specdec
