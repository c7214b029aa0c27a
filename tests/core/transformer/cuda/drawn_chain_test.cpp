// Chains that a model draws on its device, run on the CPU (core/kernels/cuda/emulation): they have
// the tokens that the host draws one by one, and are read back once.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>

#include "core/device_probs.h"
#include "core/error.h"
#include "core/kernels/cuda/sampler_tables.h"
#include "core/kernels/forwarding_ops.h"
#include "core/row_view.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/self_drafter.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/dynamic_tree.h"
#include "decoders/speculative.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/locked_model.h"
#include "tests/support/recording_ops.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr uint64_t kTargetSeed = 1;

std::unique_ptr<TransformerModel> chain_model(uint64_t seed = kTargetSeed,
                                              TransformerOptions options = emulated()) {
  options.max_length = 64;
  return std::make_unique<TransformerModel>(small_gemma(seed), paged_kv(), options);
}

/// Speculation whose drafter is a model on the kernels: another one, or the target's first layer.
class ChainBench {
 public:
  ChainBench(DrawnBy who, std::optional<uint64_t> draft_seed, std::unique_ptr<Verifier> verifier,
             std::unique_ptr<DraftShape> shape)
      : strategy_(target(who), drafter(who, draft_seed), std::move(verifier), std::move(shape)) {}
  ChainBench(DrawnBy who, std::optional<uint64_t> draft_seed, std::unique_ptr<Verifier> verifier,
             int64_t length)
      : ChainBench(who, draft_seed, std::move(verifier),
                   std::make_unique<FixedDraftLength>(length)) {}

  Generation generate(const std::vector<Token>& prompt, const SamplingParams& sampling,
                      int64_t tokens = 5,
                      std::shared_ptr<const CompiledGrammar> grammar = nullptr) {
    return generate_chains(strategy_, prompt, sampling, tokens, std::move(grammar));
  }
  const TransformerModel& draft() const { return *draft_; }

 private:
  LanguageModel& target(DrawnBy who) {
    if (who == DrawnBy::kHost) {
      return locked_;
    }
    return *target_;
  }
  std::unique_ptr<Drafter> drafter(DrawnBy who, std::optional<uint64_t> seed) {
    if (!seed) {
      return std::make_unique<SelfDrafter>(target(who), SelfDrafterOptions{.layers = 1});
    }
    draft_ = chain_model(*seed);
    if (who == DrawnBy::kHost) {
      return std::make_unique<DraftModelDrafter>(std::make_unique<LockedModel>(*draft_));
    }
    return std::make_unique<DraftModelDrafter>(std::make_unique<RowView>(*draft_, draft_->open()));
  }

  std::unique_ptr<TransformerModel> target_ = chain_model();
  std::unique_ptr<TransformerModel> draft_;
  LockedModel locked_{*target_};
  SpeculativeDecoding strategy_;
};

/// A draft model like the target, another one, and the target's own first layer.
const std::vector<std::optional<uint64_t>> kChainDrafters = {kTargetSeed, 2, std::nullopt};

TEST(CudaDrawnChainTest, GreedyTokensAreTheHosts) {
  for (const auto& draft_seed : kChainDrafters) {
    for (const int64_t length : {1, 4}) {
      SCOPED_TRACE(fmt::format("drafter {}, {} tokens", draft_seed.value_or(0), length));
      ChainBench device(DrawnBy::kDevice, draft_seed, verifier_of(DeviceRule::kNone), length);
      ChainBench host(DrawnBy::kHost, draft_seed, verifier_of(DeviceRule::kNone), length);
      for (const auto& prompt : kChainPrompts) {
        const int64_t accepted =
            expect_the_hosts_tokens(device.generate(prompt, {}), host.generate(prompt, {}), 12);
        EXPECT_TRUE(accepted > 0 || draft_seed != kTargetSeed);
      }
    }
  }
}

TEST(CudaDrawnChainTest, SampledTokensAreTheHosts) {
  const std::vector<SamplingParams> cases = {
      {.temperature = 1.0},
      {.temperature = 0.7, .top_k = 5},
      {.temperature = 1.3, .top_k = 1000, .top_p = 0.8},
      {.temperature = 0.9, .top_k = 20, .top_p = 0.95, .min_p = 0.02}};
  int64_t accepted = 0;
  int64_t drafted = 0;
  size_t next = 0;  // case; the emulation is slow
  for (const auto& draft_seed : kChainDrafters) {
    for (const DeviceRule rule :
         {DeviceRule::kRejection, DeviceRule::kBlock, DeviceRule::kSampleMatch}) {
      const int64_t length = rule == DeviceRule::kRejection ? 3
                             : rule == DeviceRule::kBlock   ? 4
                                                            : 1;
      SCOPED_TRACE(fmt::format("drafter {}, {} tokens", draft_seed.value_or(0), length));
      ChainBench device(DrawnBy::kDevice, draft_seed, verifier_of(rule), length);
      ChainBench host(DrawnBy::kHost, draft_seed, verifier_of(rule), length);
      for (int request = 0; request < 2; ++request, ++next) {
        const auto& prompt = kChainPrompts[next % kChainPrompts.size()];
        const SamplingParams& sampling = cases[next % cases.size()];
        const Generation drawn = device.generate(prompt, sampling);
        accepted += expect_the_hosts_tokens(drawn, host.generate(prompt, sampling), 8);
        for (const StepStatistics& step : drawn.steps) {
          EXPECT_EQ(step.read_backs.count, 1);
          drafted += step.drafted;
        }
      }
    }
  }
  EXPECT_GT(accepted, drafted / 4);
  EXPECT_LT(accepted, drafted);
}

TEST(CudaDrawnChainTest, TreeTokensAreTheHosts) {
  struct Case {
    std::optional<uint64_t> draft_seed;
    DeviceRule rule;
    SamplingParams sampling;
  };
  const std::vector<Case> cases = {// few: the emulation is slow
                                   {kTargetSeed, DeviceRule::kRejection, {.temperature = 1.0}},
                                   {2, DeviceRule::kSampleMatch, {.temperature = 1.3, .top_k = 2}},
                                   {std::nullopt, DeviceRule::kNone, {}}};
  int64_t accepted = 0;
  for (const Case& one : cases) {
    SCOPED_TRACE(fmt::format("T = {}", one.sampling.temperature));
    const auto generate = [&](DrawnBy who) {
      ChainBench bench(who, one.draft_seed, verifier_of(one.rule), tree_shape());
      return bench.generate(kChainPrompts.front(), one.sampling);
    };
    accepted += expect_the_hosts_tokens(generate(DrawnBy::kDevice), generate(DrawnBy::kHost),
                                        kTreeNodeBytes);
  }
  EXPECT_GT(accepted, 2);
}

TEST(CudaDrawnChainTest, DynamicTreesReadCandidates) {
  int64_t accepted = 0;
  int64_t branched = 0;  // steps
  for (const SamplingParams& sampling :
       std::vector<SamplingParams>{{}, {.temperature = 1.0, .top_k = 9}}) {
    SCOPED_TRACE(sampling.temperature);
    const auto generate = [&](DrawnBy who) {
      const DeviceRule rule = sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection;
      const DynamicTreeOptions tree{.nodes = 6, .depth = 3, .top_k = 2};
      ChainBench bench(who, kTargetSeed, verifier_of(rule),
                       std::make_unique<DynamicTreeShape>(tree));
      return bench.generate(kChainPrompts.front(), sampling);
    };
    const Generation device = generate(DrawnBy::kDevice);
    const Generation host = generate(DrawnBy::kHost);
    accepted += expect_the_hosts_drafts(device, host);
    for (size_t i = 0; i < host.steps.size(); ++i) {
      const auto& [levels, bytes] = host.steps[i].draft_read_backs;
      const int64_t rows = bytes / (40 * 4);  // of logits
      const ReadBacks wanted{levels, rows * (2 * 12 + 4) + levels * 4};
      EXPECT_EQ(device.steps[i].draft_read_backs, wanted);
      branched += rows > levels ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 2);
  EXPECT_GT(branched, 1);
}

TEST(CudaDrawnChainTest, BestTokensAreFoundUnderAGrammar) {
  const auto grammar = chain_grammar();
  int64_t accepted = 0;
  int64_t read = 0;
  for (const std::optional<uint64_t> draft_seed :
       {std::optional(kTargetSeed), std::optional<uint64_t>()}) {
    SCOPED_TRACE(draft_seed.value_or(0));
    const auto generate = [&](DrawnBy who) {
      ChainBench bench(who, draft_seed, verifier_of(DeviceRule::kNone), 3);
      return bench.generate(kChainPrompts.front(), {}, 8, grammar);
    };
    const Generation device = generate(DrawnBy::kDevice);
    accepted += expect_the_hosts_drafts(device, generate(DrawnBy::kHost));
    for (const StepStatistics& step : device.steps) {
      EXPECT_EQ(step.draft_read_backs.bytes, 8 * step.draft_read_backs.count);
      read += step.draft_read_backs.count;
    }
  }
  EXPECT_GT(accepted, 2);
  EXPECT_GT(read, 5);
}

TEST(CudaDrawnChainTest, SampledTokensUnderAGrammarAreTheHosts) {
  struct Case {
    std::optional<uint64_t> draft_seed;
    DeviceRule rule;
    SamplingParams sampling;
  };
  const std::vector<Case> cases = {
      {kTargetSeed, DeviceRule::kRejection, {.temperature = 1.0}},
      {2, DeviceRule::kBlock, {.temperature = 1.4, .top_k = 3, .top_p = 0.9}},
      {std::nullopt, DeviceRule::kSampleMatch, {.temperature = 0.9, .min_p = 0.05}}};
  int64_t accepted = 0;
  int64_t drafted = 0;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.sampling.temperature);
    const auto generate = [&](DrawnBy who) {
      ChainBench bench(who, one.draft_seed, verifier_of(one.rule), 3);
      return bench.generate(kChainPrompts.front(), one.sampling, 6, chain_grammar());
    };
    const Generation device = generate(DrawnBy::kDevice);
    accepted += expect_the_hosts_drafts(device, generate(DrawnBy::kHost));
    for (const StepStatistics& step : device.steps) {
      drafted += step.drafted;
      EXPECT_EQ(step.draft_read_backs.bytes, 8 * step.draft_read_backs.count);
    }
  }
  EXPECT_GT(accepted, 4);
  EXPECT_LT(accepted, drafted);
}

TEST(CudaDrawnChainTest, TreesUnderAGrammarAreTheHosts) {
  struct Case {
    std::optional<uint64_t> draft_seed;
    SamplingParams sampling;
    bool is_dynamic;
  };
  const std::vector<Case> cases = {{kTargetSeed, {.temperature = 1.0}, false},
                                   {2, {}, false},
                                   {kTargetSeed, {.temperature = 1.0, .top_k = 9}, true},
                                   {std::nullopt, {}, true}};
  int64_t accepted = 0;
  int64_t branched = 0;  // steps
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::Message() << one.sampling.temperature << one.is_dynamic);
    const auto generate = [&](DrawnBy who) {
      const DeviceRule rule = one.sampling.greedy() ? DeviceRule::kNone : DeviceRule::kRejection;
      const DynamicTreeOptions dynamic{.nodes = 6, .depth = 3, .top_k = 2};
      ChainBench bench(who, one.draft_seed, verifier_of(rule),
                       one.is_dynamic ? std::make_unique<DynamicTreeShape>(dynamic) : tree_shape());
      return bench.generate(kChainPrompts.front(), one.sampling, 6, chain_grammar());
    };
    const Generation device = generate(DrawnBy::kDevice);
    accepted += expect_the_hosts_drafts(device, generate(DrawnBy::kHost));
    for (const StepStatistics& step : device.steps) {
      EXPECT_LE(step.draft_read_backs.count, 3) << "one a level";
      EXPECT_LE(step.draft_read_backs.bytes, 3 * (2 * (2 * 12 + 4) + 4));
      branched += step.drafted > 3 ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 4);
  EXPECT_GT(branched, 2);
}

/// Ops of a head whose logits become NaN.
class DamagedHeadOps final : public ForwardingOps {
 public:
  DamagedHeadOps(double number, int64_t vocab)
      : ForwardingOps(cuda_ops(at::kCPU)), number_(number), vocab_(vocab) {}
  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ForwardingOps::linear(weight, input, out);
    if (out.size(1) == vocab_ && ++heads_ > 2) {
      out.fill_(number_);
    }
  }

 private:
  double number_;
  int64_t vocab_;
  int64_t heads_ = 0;
};

TEST(CudaDrawnChainTest, DamageUnderAGrammarIsTheHostsError) {
  for (const double temperature : {0.0, 1.0}) {
    const auto target = chain_model();
    TransformerOptions options;
    options.ops = std::make_shared<DamagedHeadOps>(std::nan(""), small_gemma()->config.vocab_size);
    const auto model = chain_model(kTargetSeed, options);
    SpeculativeDecoding strategy(
        *target, std::make_unique<DraftModelDrafter>(std::make_unique<RowView>(*model, 0)),
        verifier_of(temperature > 0.0 ? DeviceRule::kRejection : DeviceRule::kNone),
        std::make_unique<FixedDraftLength>(4));
    EXPECT_THAT(
        [&] {
          generate_chains(strategy, {1, 2}, {.temperature = temperature}, 20, chain_grammar());
        },
        ThrowsMessage<Error>(HasSubstr("logit")));
  }
}

TEST(CudaDrawnChainTest, ChainsRunAsGraphs) {
  ChainBench bench(DrawnBy::kDevice, 2, verifier_of(DeviceRule::kRejection), 4);
  size_t steps = 0;
  for (int request = 0; request < 2; ++request) {
    steps += bench.generate(kChainPrompts.front(), {.temperature = 1.0}, 20).steps.size();
  }
  const GraphCounts counts = bench.draft().graph_counts();
  EXPECT_GT(counts.replays, counts.captures);
  EXPECT_LT(counts.replays + counts.captures + counts.warm_ups, 2 * static_cast<int64_t>(steps))
      << "most chains are one launch";
}

TEST(CudaDrawnChainTest, AModelDrawsWhatItsLogitsSay) {
  const ChainDraws draws;
  for (const bool is_drawn : {true, false}) {
    const auto model = chain_model();
    model->prefill_get_last_logits(std::vector<Token>{5, 6});
    const std::vector<Token> fed = {7, 8, 9};
    const auto chain = model->draw_chain(fed, is_drawn ? draws.drawn(4) : draws.best(4));
    ASSERT_TRUE(chain.has_value());
    ASSERT_EQ(chain->tokens.size(), 4U);
    EXPECT_EQ(chain->read_backs, (ReadBacks{1, 4 * (is_drawn ? 8 : 12)}));
    EXPECT_EQ(chain->probs.defined(), is_drawn);
    EXPECT_EQ(model->pending(), 6) << "the last token is not evaluated";

    const auto other = chain_model();
    other->prefill_get_last_logits(std::vector<Token>{5, 6});
    Tensor logits = other->extend_get_last_logits(fed);
    CounterRandomness random(8);
    random.seek(31, Purpose::kDraft);
    for (size_t i = 0; i < 4; ++i) {
      const TokenProbs wanted =
          token_probs(LogitRow::of(logits.unsqueeze(0), 0), {}, draws.sampling);
      EXPECT_EQ(chain->tokens[i], is_drawn ? wanted.draw(random) : wanted.best()) << i;
      if (is_drawn) {
        const Tensor row = at::tensor(wanted.row(), at::kDouble);
        EXPECT_LT((chain->probs[static_cast<int64_t>(i)] - row).abs().max().item<double>(), 1e-12);
      }
      logits = other->extend_get_last_logits({&chain->tokens[i], 1});
    }

    model->commit(chain_path(5));  // two of the drafted tokens
    EXPECT_EQ(model->length(), 7);
    other->truncate(7);
    EXPECT_TRUE(at::equal(model->extend_get_last_logits(std::vector<Token>{1}),
                          other->extend_get_last_logits(std::vector<Token>{1})));
  }
}

// A chain's tables go up once; what is copied beside them are the key of random numbers and the
// chain that is read back.
TEST(CudaDrawnChainTest, AChainIsOneGraph) {
  const ChainDraws draws;
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  TransformerOptions without = emulated();
  without.graphs = 0;
  const auto graphed = chain_model(kTargetSeed, {.ops = ops});
  const auto plain = chain_model(kTargetSeed, without);
  for (TransformerModel* model : {graphed.get(), plain.get()}) {
    model->prefill_get_last_logits(std::vector<Token>{5, 6});
  }
  int64_t graphs = graphed->graph_counts().warm_ups;
  for (Token chain = 0; chain < 14; ++chain) {
    SCOPED_TRACE(chain);
    const std::vector<Token> fed = {chain, 9};  // of each length, drawn and best
    const TokenSpan tokens = TokenSpan(fed).first(1 + chain % 2);
    ChainDraws own = draws;
    own.random.position = chain;
    const ChainRequest request = chain % 4 < 2 ? own.drawn(3) : own.best(3);
    const auto wanted = plain->draw_chain(tokens, request);
    const DraftLaunches launches(*ops);
    const auto drawn = graphed->draw_chain(tokens, request);
    if (chain >= 4) {
      EXPECT_EQ(launches.ops() > 0, chain < 8) << "the second of a key runs op by op";
      EXPECT_LE(launches.copies(), 1);
    }
    ASSERT_TRUE(drawn.has_value() && wanted.has_value());
    EXPECT_EQ(drawn->tokens, wanted->tokens);
    EXPECT_EQ(drawn->read_backs, wanted->read_backs);
    ASSERT_EQ(drawn->probs.defined(), wanted->probs.defined());
    EXPECT_TRUE(!drawn->probs.defined() || at::equal(drawn->probs, wanted->probs));
    const GraphCounts counts = graphed->graph_counts();
    graphs += chain < 4 ? 3 : 1;  // forwards of the first chain of a key
    EXPECT_EQ(counts.warm_ups + counts.captures + counts.replays, graphs);
    for (TransformerModel* model : {graphed.get(), plain.get()}) {
      EXPECT_EQ(model->pending(), std::ssize(tokens) + 2);
      model->commit(chain_path(std::ssize(tokens)));
    }
  }
  ChainDraws other = draws;  // how tokens are drawn is part of a graph
  other.sampling.temperature = 1.7;
  const std::vector<Token> next = {7};
  const std::vector<ForwardOptions> cases = {{}, {.layers = {0}}, {}, {}, {.layers = {0}}, {}};
  for (const ForwardOptions& options : cases) {
    const auto drawn = graphed->draw_chain(next, other.drawn(3), options);
    EXPECT_TRUE(at::equal(drawn->probs, plain->draw_chain(next, other.drawn(3), options)->probs));
    for (TransformerModel* model : {graphed.get(), plain.get()}) {
      model->truncate(model->length());
    }
  }
  EXPECT_TRUE(
      at::equal(graphed->extend_get_last_logits(next), plain->extend_get_last_logits(next)));
}

TEST(CudaDrawnChainTest, DistributionsThatAreHeldStayAsTheyAre) {
  const ChainDraws draws;
  const auto model = chain_model();
  std::vector<Tensor> held;
  std::vector<Tensor> as_they_were;
  for (Token chain = 0; chain < 4; ++chain) {
    const std::vector<Token> fed = {chain};
    held.push_back(model->draw_chain(fed, draws.drawn(2))->probs);
    as_they_were.push_back(held.back().clone());
    model->truncate(0);
  }
  for (size_t chain = 0; chain < held.size(); ++chain) {
    EXPECT_TRUE(at::equal(held[chain], as_they_were[chain])) << chain;
  }
}

TEST(CudaDrawnChainTest, RowsAreApart) {
  const ChainDraws draws;
  const auto model = chain_model();
  const RowId row = model->open();
  RowView view(*model, row);
  EXPECT_TRUE(view.draws_drafts());
  const auto in_view = view.draw_chain(std::vector<Token>{4}, draws.best(3));
  EXPECT_EQ(model->pending(row), 3);
  EXPECT_EQ(model->pending(), 0);
  const auto in_row_0 = model->draw_chain(std::vector<Token>{4}, draws.best(3));
  EXPECT_EQ(in_view->tokens, in_row_0->tokens);
}

TEST(CudaDrawnChainTest, TheSamplerReadsTheDraftsDistributionsWhereTheyLie) {
  const auto model = chain_model();
  const auto chain = model->draw_chain(std::vector<Token>{4}, ChainDraws().drawn(3));
  const Tensor there = cuda::upload_rows(device_probs(chain->probs), model->vocab_size(), at::kCPU);
  EXPECT_EQ(there.const_data_ptr(), chain->probs.const_data_ptr());
}

TEST(CudaDrawnChainTest, DamagedLogitsAreTheHostsError) {
  const ChainDraws draws;
  for (const double damaged : std::vector<double>{std::nan(""), -INFINITY}) {
    TransformerOptions options;
    options.ops = std::make_shared<DamagedHeadOps>(damaged, small_gemma()->config.vocab_size);
    const auto model = chain_model(kTargetSeed, options);
    EXPECT_FALSE(model->draw_chain(std::vector<Token>{4}, draws.drawn(5)).has_value());
    EXPECT_EQ(model->pending(), 0);
    EXPECT_FALSE(model->draw_chain(std::vector<Token>{4}, draws.best(5)).has_value());
    EXPECT_EQ(model->pending(), 0);

    const auto target = chain_model();
    SpeculativeDecoding strategy(
        *target, std::make_unique<DraftModelDrafter>(std::make_unique<RowView>(*model, 0)),
        verifier_of(DeviceRule::kRejection), std::make_unique<FixedDraftLength>(3));
    const Task task{
        .prompt = {1, 2}, .sampling = {.temperature = 1.0}, .stop = {.max_new_tokens = 5}};
    CounterRandomness random(1);
    EXPECT_THAT([&] { strategy.generate(task.request(random)); },
                ThrowsMessage<Error>(HasSubstr("logit")));
  }
}

TEST(CudaDrawnChainTest, WhatTheHostReadsItDraws) {
  const std::vector<SamplingParams> cases = {{.temperature = 1.0, .repetition_penalty = 1.3},
                                             {.repetition_penalty = 1.3},
                                             {.temperature = 1.0, .logit_bias = {{2, 1.0}}}};
  for (const SamplingParams& sampling : cases) {
    ChainBench device(DrawnBy::kDevice, 2, verifier_of(DeviceRule::kRejection), 3);
    ChainBench host(DrawnBy::kHost, 2, verifier_of(DeviceRule::kRejection), 3);
    const Generation drawn = device.generate(kChainPrompts.front(), sampling);
    EXPECT_EQ(drawn.tokens, host.generate(kChainPrompts.front(), sampling).tokens);
    EXPECT_GE(drawn.steps.front().draft_read_backs.count, 3);
  }
}

TEST(CudaDrawnChainTest, ModelsOnTheHostDrawNone) {
  TransformerModel on_the_cpu(small_gemma(), paged_kv());
  EXPECT_FALSE(on_the_cpu.draws_drafts());
  EXPECT_THROW(on_the_cpu.draw_chain(std::vector<Token>{1}, ChainDraws().best(2)), InternalError);
  const auto model = chain_model();
  EXPECT_TRUE(model->draws_drafts());
  LockedModel locked(*model);
  EXPECT_FALSE(locked.draws_drafts());
  EXPECT_THROW(locked.draw_chain(std::vector<Token>{1}, ChainDraws().best(2)), InternalError);
}

TEST(CudaDrawnChainTest, ACallOutOfOrderChangesNothing) {
  const ChainDraws draws;
  const auto model = chain_model();
  model->forward(batch_of(std::vector<Token>{3}));
  EXPECT_THROW(model->draw_chain(std::vector<Token>{4}, draws.best(2)), InternalError);
  EXPECT_EQ(model->pending(), 1);
  model->truncate(0);
  EXPECT_THROW(model->draw_chain(std::vector<Token>{}, draws.best(2)), InternalError);
  EXPECT_THROW(model->draw_chain(std::vector<Token>{4}, draws.best(0)), InternalError);
  EXPECT_THROW(model->draw_chain(std::vector<Token>{40}, draws.best(2)), Error);
  EXPECT_THROW(model->draw_chain(std::vector<Token>{4}, draws.best(65)), Error) << "64 fit";
  EXPECT_EQ(model->pending(), 0);
  EXPECT_TRUE(model->draw_chain(std::vector<Token>{4}, draws.best(64)).has_value());
}

}  // namespace
}  // namespace specdec
