// Drafts that heads on a target draw on its device, run on the CPU (core/kernels/cuda/emulation):
// they have the tokens that the host draws one by one, and are read back once.
#include <gmock/gmock.h>

#include "tests/core/transformer/cuda/head_bench.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

/// A step reads the chain and the decision about it: features stay.
void expect_few_read_backs(const Generation& generation, int64_t bytes_of_a_token) {
  for (const StepStatistics& step : generation.steps) {
    EXPECT_EQ(step.read_backs.count, 1);
    EXPECT_EQ(step.draft_read_backs.bytes, bytes_of_a_token * step.drafted);
  }
}

TEST(CudaDrawnHeadTest, GreedyTokensAreTheHosts) {
  for (const HeadKind& kind : kDrawnHeads) {
    SCOPED_TRACE(kind.name);
    HeadBench device(DrawnBy::kDevice, kind.make, verifier_of(DeviceRule::kNone), 3);
    HeadBench host(DrawnBy::kHost, kind.make, verifier_of(DeviceRule::kNone), 3);
    const Generation wanted = host.generate(kChainPrompts.front(), {});
    if (kind.make == three_modules) {  // the first of a key is drawn as a tree of one branch
      EXPECT_EQ(device.generate(kChainPrompts.front(), {}).tokens, wanted.tokens);
    }
    const Generation drawn = device.generate(kChainPrompts.front(), {});
    expect_the_hosts_tokens(drawn, wanted, 12);
    expect_few_read_backs(drawn, 12);
  }
}

/// Once their keys are known: what is fed and drafted in a step is a graph, for which the target's
/// features are copied, of several modules as of one.
TEST(CudaDrawnHeadTest, StepsOfSeveralModulesLaunchWhatThoseOfOneDo) {
  for (const bool is_tree : {false, true}) {
    for (const auto make : {drawn_mtp, three_modules}) {
      SCOPED_TRACE(testing::Message() << is_tree << (make == drawn_mtp));
      const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
      std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(3);
      HeadBench bench(DrawnBy::kDevice, make, verifier_of(DeviceRule::kNone),
                      is_tree ? tree_shape() : std::move(shape), ops);
      for (int request = 0; request < 3; ++request) {
        bench.generate(kChainPrompts.front(), {});
      }
      ops->take_calls();
      const Generation generation = bench.generate(kChainPrompts.front(), {});
      const std::vector<std::string> calls = ops->take_calls();
      size_t steps = 0;
      for (const StepStatistics& step : generation.steps) {
        steps += step.drafted > 0 ? 1 : 0;
        EXPECT_EQ(step.draft_read_backs.count, step.drafted > 0 ? 1 : 0);
      }
      EXPECT_GT(steps, 1U);
      EXPECT_THAT(calls, testing::Each(testing::StartsWith("copy")));
      // The prompt goes to each module by itself, with features in and out of several.
      EXPECT_EQ(calls.size(), steps + (make == drawn_mtp ? 1 : 3 * 2 + 2));
    }
  }
}

/// A tree of 64 tokens is no graph: it grows behind one forward of each module, as larger ones do.
/// One of 63 may be a graph, which is to be fed the newest token.
TEST(CudaDrawnHeadTest, TreesThatNoGraphHoldsAreFedOnce) {
  std::vector<std::vector<int64_t>> paths;
  for (int64_t rank = 0; rank < 40; ++rank) {
    paths.push_back({rank});
  }
  for (int64_t rank = 0; rank < 24; ++rank) {
    paths.push_back({0, rank});
  }
  for (const auto& [tokens, fed] :
       std::vector<std::pair<size_t, std::vector<int64_t>>>{{63, {3, 2}}, {64, {4, 3}}}) {
    SCOPED_TRACE(tokens);
    const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
    auto shape = std::make_unique<StaticTreeShape>(
        tree_of_paths({paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(tokens)}));
    HeadBench bench(DrawnBy::kDevice, two_modules, verifier_of(DeviceRule::kNone), std::move(shape),
                    ops);
    EXPECT_EQ(bench.generate(kChainPrompts.front(), {}).steps.front().drafted,
              static_cast<int64_t>(tokens));
    std::vector<std::string> evaluated;  // tokens of each forward of a module
    for (const std::string& call : ops->take_calls()) {
      if (call.rfind("embed_rows", 0) == 0) {
        evaluated.push_back(call);
      }
    }
    ASSERT_GT(evaluated.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      const int64_t rows = i < 2 ? fed[i] : 1;
      EXPECT_EQ(evaluated[i], fmt::format("embed_rows [{0}] -> [{0}, 16]", rows)) << i;
    }
  }
}

/// Behind them some modules have kept nothing: a chain is drawn level by level, as trees are.
TEST(CudaDrawnHeadTest, TextsShorterThanThereAreModulesHaveTrees) {
  HeadBench device(DrawnBy::kDevice, three_modules, verifier_of(DeviceRule::kNone), 2);
  HeadBench host(DrawnBy::kHost, three_modules, verifier_of(DeviceRule::kNone), 2);
  const Generation wanted = host.generate({9}, {});
  // Chains are not the first of their keys afterwards.
  EXPECT_EQ(device.generate({9}, {}).tokens, wanted.tokens);
  const Generation drawn = device.generate({9}, {});
  expect_the_hosts_tokens(drawn, wanted, kTreeNodeBytes);
  int64_t fed = 1;
  int64_t trees = 0;
  int64_t chains = 0;
  for (const StepStatistics& step : drawn.steps) {
    const bool is_tree = fed < 3;
    EXPECT_EQ(step.draft_read_backs.bytes, (is_tree ? 2 * kTreeNodeBytes : 12) * step.drafted);
    (is_tree ? trees : chains) += step.drafted > 0 ? 1 : 0;
    fed += step.accepted + 1;
  }
  EXPECT_GT(trees, 0);
  EXPECT_GT(chains, 0);
}

TEST(CudaDrawnHeadTest, SampledTokensAreTheHosts) {
  const std::vector<SamplingParams> cases = {{.temperature = 1.0},
                                             {.temperature = 1.2, .top_k = 1000, .top_p = 0.9}};
  int64_t accepted = 0;
  int64_t drafted = 0;
  for (const HeadKind& kind : kDrawnHeads) {
    SCOPED_TRACE(kind.name);
    const DeviceRule rule = kind.name == "mtp" ? DeviceRule::kBlock : DeviceRule::kRejection;
    HeadBench device(DrawnBy::kDevice, kind.make, verifier_of(rule), 3);
    HeadBench host(DrawnBy::kHost, kind.make, verifier_of(rule), 3);
    for (size_t request = 0; request < cases.size(); ++request) {
      const auto& prompt = kChainPrompts[request];
      const SamplingParams& sampling = cases[request];
      const Generation drawn = device.generate(prompt, sampling);
      accepted += expect_the_hosts_tokens(drawn, host.generate(prompt, sampling), 8);
      expect_few_read_backs(drawn, 8);
      for (const StepStatistics& step : drawn.steps) {
        drafted += step.drafted;
      }
    }
  }
  EXPECT_GT(accepted, drafted / 10);
  EXPECT_LT(accepted, drafted);
}

TEST(CudaDrawnHeadTest, TreeTokensAreTheHosts) {
  const std::vector<SamplingParams> cases = {
      {.temperature = 1.0}, {}, {.temperature = 1.1, .top_k = 2}, {.top_k = 2}};
  int64_t accepted = 0;
  const std::vector<HeadBench::MakeDrafter> heads = {
      // few: the emulation is slow
      drawn_eagle3, two_modules, drawn_medusa, ordered_assistant};
  for (size_t i = 0; i < heads.size(); ++i) {
    const SamplingParams& sampling = cases[i];
    SCOPED_TRACE(i);
    const auto generate = [&](DrawnBy who) {
      HeadBench bench(who, heads[i],
                      verifier_of(sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection),
                      tree_shape());
      return bench.generate(kChainPrompts.front(), sampling);
    };
    accepted += expect_the_hosts_tokens(generate(DrawnBy::kDevice), generate(DrawnBy::kHost),
                                        kTreeNodeBytes);
  }
  EXPECT_GT(accepted, 1);
}

/// Later requests run the graphs of the first one's trees.
TEST(CudaDrawnHeadTest, TreesOfLaterRequestsAreTheHosts) {
  int64_t accepted = 0;
  for (const auto make : {drawn_eagle, drawn_mtp, three_modules, drawn_assistant}) {
    const SamplingParams sampling{.temperature = make == drawn_mtp ? 0.0 : 1.0};
    const DeviceRule rule = sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection;
    const auto ops = std::make_shared<DraftGraphOps>();
    HeadBench device(DrawnBy::kDevice, make, verifier_of(rule), tree_shape(), ops);
    HeadBench host(DrawnBy::kHost, make, verifier_of(rule), tree_shape());
    const size_t requests = make == three_modules ? 12 : 6;  // few drafts have the same key
    for (size_t request = 0; request < requests; ++request) {
      SCOPED_TRACE(request);
      const std::vector<Token>& prompt = kChainPrompts[request % 2];
      accepted += expect_the_hosts_tokens(device.generate(prompt, sampling),
                                          host.generate(prompt, sampling), kTreeNodeBytes);
    }
    EXPECT_GT(ops->replays(), 0);
  }
  EXPECT_GT(accepted, 1);
}

/// Eagle 3 and Medusa have columns for some of the tokens, and for none that may follow some texts.
TEST(CudaDrawnHeadTest, TokensUnderAGrammarAreTheHosts) {
  const auto grammar = chain_grammar();
  const std::vector<HeadBench::MakeDrafter> heads = {drawn_eagle3, two_modules, drawn_medusa,
                                                     drawn_assistant};
  int64_t drafted = 0;
  int64_t accepted = 0;
  for (size_t i = 0; i < heads.size(); ++i) {
    SCOPED_TRACE(i);
    const SamplingParams sampling{.temperature = i % 2 == 0 ? 1.0 : 0.0};
    const auto generate = [&](DrawnBy who) {
      const DeviceRule rule = sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection;
      std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(3);
      HeadBench bench(who, heads[i], verifier_of(rule), i < 2 ? std::move(shape) : tree_shape());
      return bench.generate(kChainPrompts.front(), sampling, grammar);
    };
    const Generation device = generate(DrawnBy::kDevice);
    accepted += expect_the_hosts_drafts(device, generate(DrawnBy::kHost));
    for (const StepStatistics& step : device.steps) {
      drafted += step.drafted;
      if (i < 2) {
        EXPECT_EQ(step.draft_read_backs.bytes, 8 * step.draft_read_backs.count);
      }
    }
  }
  EXPECT_GT(accepted, 1);
  EXPECT_GT(drafted, accepted);
}

TEST(CudaDrawnHeadTest, WhatTheHostReadsItDraws) {
  const SamplingParams penalised{.temperature = 1.0, .repetition_penalty = 1.3};
  HeadBench device(DrawnBy::kDevice, drawn_eagle3, verifier_of(DeviceRule::kRejection), 3);
  HeadBench host(DrawnBy::kHost, drawn_eagle3, verifier_of(DeviceRule::kRejection), 3);
  for (const SamplingParams& sampling : {penalised, SamplingParams{.temperature = 1.0}}) {
    EXPECT_EQ(device.generate(kChainPrompts.front(), sampling).tokens,
              host.generate(kChainPrompts.front(), sampling).tokens);
  }
}

}  // namespace
}  // namespace specdec
