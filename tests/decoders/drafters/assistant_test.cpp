// Gemma 4's assistant, and that targets of Gemma 3n and 4 keep what speculation promises.
#include "decoders/drafters/assistant.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "core/error.h"
#include "core/transformer/heads/drafting_functions.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/target_table.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct AssistantCase {
  std::string name;
  std::string target;  ///< kind, see tiny_gemma4
  int64_t clusters;
  bool sample;
  bool tree;
  CentroidFill fill = CentroidFill::kBelowMinimum;
};

void PrintTo(const AssistantCase& one, std::ostream* out) { *out << one.name; }

AssistantSteps steps_of(const TransformerWeights& target, const AssistantCase& one) {
  const AssistantShape shape{.hidden_size = 8,
                             .intermediate_size = 12,
                             .heads = 2,
                             .layers = 3,
                             .clusters = one.clusters,
                             .chosen = (one.clusters + 1) / 2};
  const auto head = random_assistant(target, shape, {.seed = 7, .dtype = target.weight_dtype});
  return drafting_steps(std::make_shared<AssistantModel>(head, AssistantOptions{.fill = one.fill}));
}

class AssistantDrafterTest : public testing::TestWithParam<AssistantCase> {
 protected:
  static std::unique_ptr<SpeculativeDecoding> decoding(TransformerModel& target,
                                                       std::unique_ptr<Verifier> verifier) {
    auto drafter =
        std::make_unique<AssistantDrafter>(target, steps_of(target.weights(), GetParam()),
                                           AssistantDrafterOptions{.sample = GetParam().sample});
    std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(2);
    if (GetParam().tree) {
      shape = std::make_unique<StaticTreeShape>(tree_of_widths(std::vector<int64_t>{2, 1}, 16));
    }
    return std::make_unique<SpeculativeDecoding>(target, std::move(drafter), std::move(verifier),
                                                 std::move(shape));
  }
};

TEST_P(AssistantDrafterTest, TheOutputHasTheDistributionOfTheTarget) {
  const auto weights = tiny_gemma4(GetParam().target, 3);
  TransformerModel target(weights, paged_kv());
  const Task task{{0, 1, 2, 1}, {.temperature = 0.9}, {.max_new_tokens = 4}};
  const SequenceDistribution wanted = reference_distribution(target_table(weights), task);
  EXPECT_LT(max_difference(
                exact_distribution(*decoding(target, std::make_unique<RejectionVerifier>()), task),
                wanted),
            1e-12);
  if (!GetParam().tree) {
    EXPECT_LT(
        max_difference(
            exact_distribution(*decoding(target, std::make_unique<BlockVerifier>()), task), wanted),
        1e-12);
  }
}

TEST_P(AssistantDrafterTest, GreedyTokensAreTheTargets) {
  const auto weights = tiny_gemma4(GetParam().target, 12);
  TransformerModel target(weights, paged_kv());
  TransformerModel plain_target(weights, paged_kv());
  const auto speculative = decoding(target, std::make_unique<ExactMatchVerifier>());
  AutoregressiveDecoding plain(plain_target);
  for (const std::vector<Token>& prompt :
       {std::vector<Token>{3, 1, 4, 1, 5}, std::vector<Token>{3}, std::vector<Token>(20, 7)}) {
    const Task task{prompt, {}, {.max_new_tokens = 60}};
    CounterRandomness random(1);
    const Generation generation = speculative->generate(task.request(random));
    EXPECT_EQ(generation.tokens, plain.generate(task.request(random)).tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AssistantDrafterTest,
                         testing::Values(AssistantCase{"dense_chain", "dense", 0, true, false},
                                         AssistantCase{"dense_chain_best", "dense", 0, false,
                                                       false},
                                         AssistantCase{"dense_tree", "dense", 0, true, true},
                                         AssistantCase{"e_ordered_tree_best", "e", 3, false, true},
                                         AssistantCase{"e_ordered_chain", "e", 3, true, false},
                                         AssistantCase{"e_ordered_chain_without_the_others", "e", 3,
                                                       true, false, CentroidFill::kNothing},
                                         AssistantCase{"moe_chain", "moe", 0, true, false},
                                         AssistantCase{"gemma3n_tree", "3n", 0, true, true}),
                         [](const auto& info) { return info.param.name; });

TEST(AssistantDrafterChecksTest, AnotherTargetIsRefused) {
  const AssistantCase dense{"", "dense", 0, true, false};
  TransformerModel target(tiny_gemma4("dense", 12), paged_kv());
  const AssistantDrafter other(target, steps_of(*tiny_gemma4("dense", 11), dense));
  EXPECT_THAT([&] { other.check(target); }, ThrowsMessage<ConfigError>(HasSubstr("another model")));
}

}  // namespace
}  // namespace specdec
