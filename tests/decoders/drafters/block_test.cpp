// Drafting in blocks over tiny float64 targets with a random DFlash head: the output's distribution
// is the target's, and what is drafted with is what the head gives on the text so far.
#include "decoders/drafters/block.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <ostream>
#include <set>

#include "core/error.h"
#include "core/transformer/heads/block_head.h"
#include "decoders/autoregressive.h"
#include "decoders/shapes/draft_growth.h"
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

struct BlockDrafterCase {
  std::string name;
  std::string target;  ///< kind, see tiny_gemma4
  bool sample;
  bool tree = false;
  BlockMethod method = BlockMethod::kDFlash;
  double confidence_threshold = 0.0;
};

void PrintTo(const BlockDrafterCase& one, std::ostream* out) { *out << one.name; }

std::shared_ptr<const BlockHead> block_head(const TransformerWeights& target,
                                            BlockMethod method = BlockMethod::kDFlash) {
  BlockHeadConfig config = make_block_head_config(target, 2, 4);
  config.plan.front().window = 3;
  config.causal.front() = true;
  config.mask_token = 1;
  config.method = method;
  config.markov = {
      .rank = 4, .gate = MarkovGate::kRnn, .confidence = true, .confidence_with_markov = true};
  config.domino = {.state_size = 6, .rank = 4, .plain_drafts = 1};
  config.dflash2 = {.rank = 4, .candidates = 2, .kernel_size = 2, .group_size = 2};
  return random_block_head(config, {.seed = 7, .dtype = target.weight_dtype});
}

std::unique_ptr<BlockHeadModel> block_model(const std::shared_ptr<const TransformerWeights>& target,
                                            int64_t max_length = 256,
                                            BlockMethod method = BlockMethod::kDFlash) {
  return std::make_unique<BlockHeadModel>(block_head(*target, method), target, paged_kv(),
                                          TransformerOptions{.max_length = max_length});
}

std::unique_ptr<BlockDrafter> block_drafter(const std::shared_ptr<const TransformerWeights>& target,
                                            bool sample, int64_t max_length = 256) {
  return std::make_unique<BlockDrafter>(
      block_model(target, max_length),
      BlockDrafterOptions{.sample = sample,
                          .capture_layers = block_head(*target)->config.capture_layers});
}

class BlockDrafterTest : public testing::TestWithParam<BlockDrafterCase> {
 protected:
  static std::unique_ptr<SpeculativeDecoding> decoding(
      TransformerModel& target, const std::shared_ptr<const TransformerWeights>& weights,
      std::unique_ptr<Verifier> verifier) {
    std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(2);
    if (GetParam().tree) {
      shape = std::make_unique<StaticTreeShape>(tree_of_widths(std::vector<int64_t>{2, 1}, 16));
    }
    auto drafter = std::make_unique<BlockDrafter>(
        block_model(weights, 256, GetParam().method),
        BlockDrafterOptions{.sample = GetParam().sample,
                            .capture_layers = block_head(*weights)->config.capture_layers,
                            .confidence_threshold = GetParam().confidence_threshold});
    return std::make_unique<SpeculativeDecoding>(target, std::move(drafter), std::move(verifier),
                                                 std::move(shape));
  }
};

TEST_P(BlockDrafterTest, TheOutputHasTheDistributionOfTheTarget) {
  const auto weights = tiny_gemma4(GetParam().target, 3);
  TransformerModel target(weights, paged_kv());
  const Task task{{0, 1, 2, 1}, {.temperature = 0.9}, {.max_new_tokens = 4}};
  const SequenceDistribution wanted = reference_distribution(target_table(weights), task);
  EXPECT_LT(
      max_difference(exact_distribution(
                         *decoding(target, weights, std::make_unique<RejectionVerifier>()), task),
                     wanted),
      kSameDistribution);
  if (!GetParam().tree) {
    EXPECT_LT(
        max_difference(
            exact_distribution(*decoding(target, weights, std::make_unique<BlockVerifier>()), task),
            wanted),
        kSameDistribution);
  }
}

TEST_P(BlockDrafterTest, GreedyTokensAreTheTargets) {
  const auto weights = tiny_gemma4(GetParam().target, 12);
  TransformerModel target(weights, paged_kv());
  TransformerModel plain_target(weights, paged_kv());
  const auto speculative = decoding(target, weights, std::make_unique<ExactMatchVerifier>());
  AutoregressiveDecoding plain(plain_target);
  for (const std::vector<Token>& prompt :
       {std::vector<Token>{3, 1, 4, 1, 5}, std::vector<Token>{3}, std::vector<Token>(20, 7)}) {
    const Task task{prompt, {}, {.max_new_tokens = 60}};
    CounterRandomness random(1);
    const Generation generation = speculative->generate(task.request(random));
    EXPECT_EQ(generation.tokens, plain.generate(task.request(random)).tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BlockDrafterTest,
    testing::Values(
        BlockDrafterCase{"dense_chain", "dense", true},
        BlockDrafterCase{"dense_chain_best", "dense", false},
        BlockDrafterCase{"dense_tree", "dense", true, true}, BlockDrafterCase{"e_chain", "e", true},
        BlockDrafterCase{"moe_tree_best", "moe", false, true},
        BlockDrafterCase{"gemma3n_chain", "3n", true},
        BlockDrafterCase{"dspark_chain", "dense", true, false, BlockMethod::kDSpark},
        BlockDrafterCase{"dspark_confident", "dense", true, false, BlockMethod::kDSpark, 0.5},
        BlockDrafterCase{"dspark_tree", "dense", true, true, BlockMethod::kDSpark, 0.12},
        BlockDrafterCase{"domino_tree", "dense", true, true, BlockMethod::kDomino},
        BlockDrafterCase{"dflash2_chain", "dense", true, false, BlockMethod::kDFlash2},
        BlockDrafterCase{"dflash2_tree", "dense", true, true, BlockMethod::kDFlash2}),
    [](const auto& info) { return info.param.name; });

TEST(BlockConfidenceTest, ADraftEndsWhereTheHeadExpectsNothing) {
  const auto weights = tiny_gemma4("dense", 3);
  TransformerModel target(weights, paged_kv());
  const Task task{{0, 1, 2, 1}, {}, {.max_new_tokens = 30}};
  const auto drafted = [&](double threshold) {
    SpeculativeDecoding decoding(
        target,
        std::make_unique<BlockDrafter>(
            block_model(weights, 256, BlockMethod::kDSpark),
            BlockDrafterOptions{.sample = false,
                                .capture_layers = block_head(*weights)->config.capture_layers,
                                .confidence_threshold = threshold}),
        std::make_unique<ExactMatchVerifier>(), std::make_unique<FixedDraftLength>(3));
    CounterRandomness random(1);
    int64_t count = 0;
    for (const StepStatistics& step : decoding.generate(task.request(random)).steps) {
      count += step.drafted;
    }
    return count;
  };
  std::vector<int64_t> counts;
  for (const double threshold : {0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0}) {
    counts.push_back(drafted(threshold));
  }
  EXPECT_TRUE(std::is_sorted(counts.rbegin(), counts.rend())) << testing::PrintToString(counts);
  EXPECT_GT(std::set<int64_t>(counts.begin(), counts.end()).size(), 2U)
      << testing::PrintToString(counts);
  EXPECT_EQ(counts.back(), 0);
}

/// A selector gives most tokens no probability: where a bias or a grammar forbids the others, there
/// is no distribution to draft from.
TEST(BlockSelectorTest, NothingIsDraftedWhereNoCandidateIsAllowed) {
  const auto weights = tiny_gemma4("dense", 3);
  TransformerModel target(weights, paged_kv());
  TransformerModel plain_target(weights, paged_kv());
  AutoregressiveDecoding plain(plain_target);
  const auto drafted = [&](BlockMethod method, double temperature, Token allowed) {
    SpeculativeDecoding decoding(
        target,
        std::make_unique<BlockDrafter>(
            block_model(weights, 256, method),
            BlockDrafterOptions{.capture_layers = block_head(*weights)->config.capture_layers}),
        std::make_unique<RejectionVerifier>(), std::make_unique<FixedDraftLength>(3));
    Task task{{0, 1, 2, 1}, {.temperature = temperature}, {.max_new_tokens = 8}};
    for (Token token = 0; token < target.vocab_size(); ++token) {
      if (token != allowed) {
        task.sampling.logit_bias[token] = -std::numeric_limits<double>::infinity();
      }
    }
    CounterRandomness random(1);
    const Generation generation = decoding.generate(task.request(random));
    EXPECT_EQ(generation.tokens, plain.generate(task.request(random)).tokens);
    int64_t count = 0;
    for (const StepStatistics& step : generation.steps) {
      count += step.drafted;
    }
    return count;
  };
  for (const double temperature : {0.0, 0.9}) {
    int64_t selected = 0;
    int64_t all = 0;
    for (Token allowed = 0; allowed < target.vocab_size(); ++allowed) {
      selected += drafted(BlockMethod::kDFlash2, temperature, allowed);
      all += drafted(BlockMethod::kDFlash, temperature, allowed);
    }
    EXPECT_GT(selected, 0);
    EXPECT_LT(selected, all);
  }
}

/// Chains of changing length, some steps plain; keeps what they were drafted with.
struct DraftedWith {
  std::vector<Token> committed;
  int64_t depth;
  Tensor logits;
};

class RecordingChain final : public DraftShape {
 public:
  explicit RecordingChain(std::vector<DraftedWith>& seen) : seen_(seen) {}
  DraftLimits next(int64_t) override {
    constexpr int64_t kLengths[] = {3, 0, 1, 9, 2, 0, 0};
    const int64_t length = kLengths[step_++ % std::size(kLengths)];
    return {.tokens = length, .depth = length, .branches = 1};
  }
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override {
    DraftGrowth growth(context, distribution, siblings);
    std::vector<int64_t> newest = {0};
    for (int64_t depth = 0; !newest.empty(); ++depth) {
      growth.expand(newest);
      if (const Tensor logits = growth.logits(newest.front()); logits.defined()) {
        seen_.push_back(
            {{context.committed.begin(), context.committed.end()}, depth, logits.clone()});
      }
      newest = growth.add_children(newest.front(), 1);
    }
    return std::move(growth).finish();
  }
  bool branches() const override { return false; }

 private:
  std::vector<DraftedWith>& seen_;
  size_t step_ = 0;
};

/// What the head gives on a text when all of it is kept at once.
Tensor fresh_logits(const std::shared_ptr<const TransformerWeights>& weights,
                    const std::vector<Token>& committed) {
  TransformerModel target(weights, paged_kv());
  const auto model = block_model(weights);
  const auto result =
      target.prefill(TokenSpan(committed).first(committed.size() - 1),
                     {.capture_layers = block_head(*weights)->config.capture_layers});
  model->keep(committed, at::cat(result.captured, 1));
  model->evaluate(committed.back(), model->depth());
  std::vector<Tensor> rows;
  Draft draft = Draft::root(committed.back());
  for (int64_t node = 0; node < model->depth(); ++node) {
    rows.push_back(model->logits(draft, {&node, 1})[0]);
    draft.add(0, node);
  }
  return at::stack(rows);
}

TEST(BlockDrafterHistoryTest, DraftsWithWhatTheHeadGivesOnTheTextSoFar) {
  for (const char* kind : {"dense", "e", "3n"}) {
    const auto weights = tiny_gemma4(kind, 5);
    TransformerModel target(weights, paged_kv());
    std::vector<DraftedWith> seen;
    SpeculativeDecoding decoding(target, block_drafter(weights, true),
                                 std::make_unique<RejectionVerifier>(),
                                 std::make_unique<RecordingChain>(seen));
    int64_t accepted = 0;
    for (uint64_t seed = 0; seed < 3; ++seed) {  // one drafter, several requests
      const Task task{{3, 1, 4, 1}, {.temperature = 1.0}, {.max_new_tokens = 30}};
      CounterRandomness random(seed);
      for (const StepStatistics& step : decoding.generate(task.request(random)).steps) {
        accepted += step.committed - 1;
      }
    }
    EXPECT_GT(accepted, 5);
    EXPECT_GT(seen.size(), 60U);
    for (const DraftedWith& drafted : seen) {
      const Tensor fresh = fresh_logits(weights, drafted.committed)[drafted.depth];
      EXPECT_LE((drafted.logits - fresh).abs().max().item<double>(), 1e-10)
          << kind << " " << drafted.committed.size() << " " << drafted.depth;
    }
  }
}

TEST(BlockDrafterLimitsTest, TheContextMayEndWithinABlock) {
  const auto weights = tiny_gemma4("dense", 11);
  for (int64_t max_length = 8; max_length < 16; ++max_length) {
    TransformerModel target(weights, paged_kv(), {.max_length = max_length});
    TransformerModel plain_target(weights, paged_kv(), {.max_length = max_length});
    SpeculativeDecoding decoding(target, block_drafter(weights, true, max_length),
                                 std::make_unique<ExactMatchVerifier>(),
                                 std::make_unique<FixedDraftLength>(8));
    const Task task{.prompt = {3, 1, 4, 1, 5}, .stop = {.max_new_tokens = 40}};
    CounterRandomness random(1);
    const Generation generation = decoding.generate(task.request(random));
    EXPECT_EQ(generation.stop_reason, StopReason::kContextFull);
    EXPECT_EQ(generation.tokens,
              AutoregressiveDecoding(plain_target).generate(task.request(random)).tokens);
  }
}

TEST(BlockDrafterLimitsTest, ADraftIsNoLongerThanTheBlock) {
  const auto weights = tiny_gemma4("dense", 11);
  TransformerModel target(weights, paged_kv());
  SpeculativeDecoding decoding(target, block_drafter(weights, true),
                               std::make_unique<ExactMatchVerifier>(),
                               std::make_unique<FixedDraftLength>(8));
  const Task task{{3, 1, 4}, {}, {.max_new_tokens = 30}};
  CounterRandomness random(1);
  for (const StepStatistics& step : decoding.generate(task.request(random)).steps) {
    EXPECT_LE(step.drafted, 3);
  }
}

TEST(BlockDrafterChecksTest, AnotherTargetIsRefused) {
  const auto drafter = block_drafter(tiny_gemma4("dense", 12), true);
  const TransformerModel vocabulary(tiny_gemma4("dense", 11), paged_kv());
  EXPECT_THAT([&] { drafter->check(vocabulary); },
              ThrowsMessage<ConfigError>(HasSubstr("a vocabulary of 12; this target has 11")));
  const BlockDrafter layers(block_model(tiny_gemma4("dense", 12)),
                            {.sample = true, .capture_layers = {0, 4, 1}});
  const TransformerModel target(tiny_gemma4("dense", 12), paged_kv());
  EXPECT_THAT([&] { layers.check(target); },
              ThrowsMessage<ConfigError>(HasSubstr("after layer 4")));
  const BlockDrafter width(block_model(tiny_gemma4("dense", 12)),
                           {.sample = true, .capture_layers = {0}});
  EXPECT_THAT([&] { width.check(target); }, ThrowsMessage<ConfigError>(HasSubstr("numbers of a")));
}

}  // namespace
}  // namespace specdec
