// Sampled requests whose drafts the CUDA kernels verify, run on the CPU
// (core/kernels/cuda/emulation): they have the tokens that the host draws, and the target's
// distribution.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "core/families/model.h"
#include "core/kernels/cuda/cuda_ops.h"
#include "core/kernels/cuda/cuda_sampler.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/rejection.h"
#include "decoders/verifiers/sample_match.h"
#include "kv/paged_kv.h"
#include "tests/decoders/promise_rows.h"
#include "tests/support/golden.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/parameter_name.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/test_drafters.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kSampledVocab = 6;
constexpr double kSameMass = 1e-9;

/// Logits that float32 holds, so that host and kernels read the same.
LogitTable float_table(const LogitTable& table) {
  return [table](TokenSpan history) {
    std::vector<double> logits = table(history);
    std::transform(logits.begin(), logits.end(), logits.begin(),
                   [](double logit) { return static_cast<double>(static_cast<float>(logit)); });
    return logits;
  };
}

const LogitTable& sampled_target() {
  static const LogitTable table = float_table(random_table(kSampledVocab, 5));
  return table;
}

/// Texts with free, forced and forbidden places.
const std::shared_ptr<const CompiledGrammar>& sampled_grammar() {
  static const auto grammar =
      letter_grammar({"a", "b", "ab", "ba", "c", ""}, "a(b(a|b)|aab|c{2})(ab|b|c){0,40}");
  return grammar;
}

struct SampledCase {
  std::string name;
  SamplingParams sampling;
  bool constrained = false;
};

std::vector<SampledCase> sampled_cases() {
  return {{"plain", {.temperature = 1.0}},
          {"cold", {.temperature = 0.7, .top_k = 3}},
          {"top_k_over_the_vocabulary", {.temperature = 0.7, .top_k = 1000}},
          {"top_p", {.temperature = 1.0, .top_p = 0.8}},
          {"all", {.temperature = 1.3, .top_k = 5, .top_p = 0.95, .min_p = 0.05}},
          {"grammar", {.temperature = 1.0}, true},
          {"grammar_all", {.temperature = 0.7, .top_k = 2, .top_p = 0.9, .min_p = 0.1}, true}};
}

/// A generation whose target's logits are the host's, or the kernels'.
Generation sampled_generation(const StrategyRow& row, const SampledCase& sampled,
                              std::shared_ptr<DeviceSampler> sampler) {
  FakeModel target(kSampledVocab, sampled_target());
  target.keep_logits_for(std::move(sampler));
  const LogitTable drafts = mixed_table(sampled_target(), random_table(kSampledVocab, 9), 0.5);
  Task task{
      .prompt = {0, 1, 2, 1, 0, 1}, .sampling = sampled.sampling, .stop = {.max_new_tokens = 7}};
  task.constraint.grammar = sampled.constrained ? sampled_grammar() : nullptr;
  CounterRandomness random(2);
  return row.make(target, drafts)->generate(task.request(random));
}

void expect_the_same_masses(const std::vector<double>& actual, const std::vector<double>& wanted) {
  ASSERT_EQ(actual.size(), wanted.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], wanted[i], kSameMass) << i;
  }
}

/// The emulation is slow: some strategies, with every rule, drawn and chosen drafts, chains and
/// trees. Those of the first list are decided by kernels, those of the second on the host, by a
/// verifier without one or for a drafter that reads logits. Greedy tokens under a grammar are
/// chosen by kernels for all but the latter.
const std::vector<std::string> kDecidedByKernels = {"autoregressive",
                                                    "draft_model_block_fixed",
                                                    "draft_model_rejection_fixed",
                                                    "draft_model_sample_match_fixed",
                                                    "draft_model_rejection_static_tree",
                                                    "draft_model_greedy_rejection_dynamic_tree",
                                                    "suffix_sample_match_static_tree",
                                                    "suffix_block_adaptive",
                                                    "mixed_chain_block_fixed",
                                                    "mixed_chain_rejection_heuristic",
                                                    "sampled_tree_rejection_static_tree",
                                                    "chosen_tree_rejection_static_tree"};
const std::vector<std::string> kDecidedByTheHost = {"draft_model_threshold_of_one_fixed",
                                                    "recycling_rejection_static_tree"};

bool is_one_of(const std::vector<std::string>& names, const StrategyRow& row) {
  return std::find(names.begin(), names.end(), row.name) != names.end();
}

class CudaSampledTest : public testing::TestWithParam<StrategyRow> {};

TEST_P(CudaSampledTest, TokensAreTheHosts) {
  for (const SampledCase& sampled : sampled_cases()) {
    SCOPED_TRACE(sampled.name);
    const Generation host = sampled_generation(GetParam(), sampled, nullptr);
    const Generation device = sampled_generation(GetParam(), sampled, cuda_sampler(at::kCPU));
    ASSERT_EQ(device.tokens, host.tokens);
    ASSERT_EQ(device.steps.size(), host.steps.size());
    for (size_t step = 0; step < host.steps.size(); ++step) {
      EXPECT_EQ(device.steps[step].accepted, host.steps[step].accepted) << step;
      EXPECT_EQ(host.steps[step].read_backs.count, 0);
      EXPECT_EQ(device.steps[step].read_backs.count,
                is_one_of(kDecidedByKernels, GetParam()) ? 1 : 0);
    }
    expect_the_same_masses(device.log_allowed, host.log_allowed);
    expect_the_same_masses(device.log_probs, host.log_probs);
  }
}

TEST_P(CudaSampledTest, GreedyTokensUnderAGrammarAreTheHosts) {
  const SampledCase greedy{"greedy", {}, true};
  const Generation host = sampled_generation(GetParam(), greedy, nullptr);
  const Generation device = sampled_generation(GetParam(), greedy, cuda_sampler(at::kCPU));
  ASSERT_EQ(device.tokens, host.tokens);
  EXPECT_EQ(device.gaps, host.gaps);
  ASSERT_EQ(device.steps.size(), host.steps.size());
  const bool reads_logits = GetParam().name.find("recycling") == 0;
  for (size_t step = 0; step < host.steps.size(); ++step) {
    EXPECT_EQ(device.steps[step].accepted, host.steps[step].accepted) << step;
    EXPECT_GE(device.steps[step].other_seconds, 0.0) << "waited for once";
    const ReadBacks& read = device.steps[step].read_backs;
    EXPECT_EQ(read.count, reads_logits ? 0 : 1) << step;
    EXPECT_EQ(read.bytes % 28, 0) << step;
    EXPECT_EQ(read.bytes > 0, !reads_logits) << step;
  }
  expect_the_same_masses(device.log_allowed, host.log_allowed);
  expect_the_same_masses(device.log_probs, host.log_probs);
}

std::vector<StrategyRow> sampling_rows() {
  std::vector<StrategyRow> rows = promise_rows();
  rows.erase(std::remove_if(rows.begin(), rows.end(),
                            [](const StrategyRow& row) {
                              return !is_one_of(kDecidedByKernels, row) &&
                                     !is_one_of(kDecidedByTheHost, row);
                            }),
             rows.end());
  SPECDEC_CHECK(rows.size() == kDecidedByKernels.size() + kDecidedByTheHost.size(),
                "{} of the strategies exist", rows.size());
  return rows;
}

INSTANTIATE_TEST_SUITE_P(All, CudaSampledTest, testing::ValuesIn(sampling_rows()),
                         [](const auto& info) { return info.param.name; });

/// Speculation with a draft model's drawn chains.
std::unique_ptr<DecodingStrategy> drawn_chains(LanguageModel& target,
                                               std::unique_ptr<Verifier> verifier) {
  const LogitTable drafts = mixed_table(sampled_target(), random_table(kSampledVocab, 9), 0.5);
  return std::make_unique<SpeculativeDecoding>(
      target,
      std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(kSampledVocab, drafts)),
      std::move(verifier), std::make_unique<FixedDraftLength>(2));
}

TEST(CudaSamplerTest, OutputsHaveTheTargetsDistribution) {
  const Task task{
      .prompt = {0, 1}, .sampling = {.temperature = 0.9}, .stop = {.max_new_tokens = 2}};
  const SequenceDistribution wanted = reference_distribution(sampled_target(), task);
  FakeModel target(kSampledVocab, sampled_target());
  target.keep_logits_for(cuda_sampler(at::kCPU));
  AutoregressiveDecoding plain(target);
  const auto rejection = drawn_chains(target, std::make_unique<RejectionVerifier>());
  const auto block = drawn_chains(target, std::make_unique<BlockVerifier>());
  for (DecodingStrategy* strategy :
       {static_cast<DecodingStrategy*>(&plain), rejection.get(), block.get()}) {
    const ChiSquare test = chi_square(sample_counts(*strategy, task, 300, 2024), wanted);
    EXPECT_GT(test.degrees, 9);
    EXPECT_GT(test.p_value, 1e-3);
  }
}

TEST(CudaSamplerTest, AStepReadsAFewBytesANode) {
  FakeModel target(kSampledVocab, sampled_target());
  target.keep_logits_for(cuda_sampler(at::kCPU));
  const auto strategy = drawn_chains(target, std::make_unique<RejectionVerifier>());
  Task task{.prompt = {0, 1}, .sampling = {.temperature = 1}, .stop = {.max_new_tokens = 9}};
  CounterRandomness random(3);
  struct Case {
    bool constrained;
    double temperature;
    int64_t of_node, of_step;
  };
  for (const Case& one : {Case{false, 1.0, 8, 8}, Case{true, 1.0, 24, 8}, Case{true, 0.0, 28, 0}}) {
    task.constraint = {.grammar = one.constrained ? sampled_grammar() : nullptr, .forced = false};
    task.sampling.temperature = one.temperature;
    const Generation generation = strategy->generate(task.request(random));
    ASSERT_FALSE(generation.steps.empty());
    for (const StepStatistics& step : generation.steps) {
      const int64_t nodes = target.forwards()[target.forwards().size() - generation.steps.size() +
                                              static_cast<size_t>(&step - generation.steps.data())];
      const ReadBacks wanted{1, one.of_node * nodes + one.of_step};
      EXPECT_EQ(step.read_backs, wanted);
    }
  }
}

/// Accepts all that is drafted.
class CredulousVerifier final : public Verifier {
 public:
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t,
                      Randomness&) const override {
    return {.path = chain_path(draft.size()), .next = target.best(draft.proposed())};
  }
};

TEST(CudaSamplerTest, MassesAreThoseOfTheTokensThatWereTaken) {
  Task task{.prompt = {0, 1}, .stop = {.max_new_tokens = 9}};
  task.constraint.grammar = sampled_grammar();
  CounterRandomness random(4);
  std::vector<Generation> both;
  for (const auto& sampler : {std::shared_ptr<DeviceSampler>(), cuda_sampler(at::kCPU)}) {
    FakeModel target(kSampledVocab, sampled_target());
    target.keep_logits_for(sampler);
    const LogitTable worst = [](TokenSpan history) {
      std::vector<double> logits = sampled_target()(history);
      std::transform(logits.begin(), logits.end(), logits.begin(), std::negate<>());
      return logits;
    };
    SpeculativeDecoding strategy(
        target,
        std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(kSampledVocab, worst)),
        std::make_unique<CredulousVerifier>(), std::make_unique<FixedDraftLength>(2));
    both.push_back(strategy.generate(task.request(random)));
  }
  EXPECT_EQ(both[1].tokens, both[0].tokens);
  expect_the_same_masses(both[1].log_allowed, both[0].log_allowed);
  expect_the_same_masses(both[1].log_probs, both[0].log_probs);
  FakeModel target(kSampledVocab, sampled_target());
  const Generation best = AutoregressiveDecoding(target).generate(task.request(random));
  EXPECT_NE(both[0].tokens, best.tokens) << "other tokens than the best are taken";
}

TEST(CudaSamplerTest, TokensBeyondAGrammarsVocabularyAreNotDrawn) {
  constexpr int64_t kPadded = kSampledVocab + 30;
  FakeModel target(kPadded, [](TokenSpan history) {
    std::vector<double> logits(kPadded, 50.0);
    const std::vector<double> own = sampled_target()(history);
    std::copy(own.begin(), own.end(), logits.begin());
    return logits;
  });
  target.keep_logits_for(cuda_sampler(at::kCPU));
  Task task{.prompt = {0, 1}, .sampling = {.temperature = 1}, .stop = {.max_new_tokens = 9}};
  task.constraint.grammar = sampled_grammar();
  CounterRandomness random(5);
  for (const double temperature : {1.0, 0.0}) {
    task.sampling.temperature = temperature;
    const Generation generation = AutoregressiveDecoding(target).generate(task.request(random));
    EXPECT_THAT(generation.tokens, testing::Each(testing::Lt(kSampledVocab)));
    EXPECT_EQ(generation.steps.front().read_backs.count, 1);
    EXPECT_LT(generation.log_allowed.front(), -30.0);
  }
}

TEST(CudaSamplerTest, DamagedLogitsAreTheHostsError) {
  const double nan = std::nan("");
  const double inf = INFINITY;
  for (const double damaged : {nan, inf, -inf}) {
    FakeModel target(kSampledVocab, [damaged](TokenSpan history) {
      std::vector<double> logits(kSampledVocab, history.size() < 4 ? 1.0 : damaged);
      logits.back() = std::isinf(damaged) && damaged > 0 ? 1.0 : logits.back();
      return logits;
    });
    target.keep_logits_for(cuda_sampler(at::kCPU));
    const Task sampled{
        .prompt = {3, 1}, .sampling = {.temperature = 1}, .stop = {.max_new_tokens = 9}};
    Task greedy{.prompt = {3, 1}, .stop = {.max_new_tokens = 9}};
    greedy.constraint = {.grammar = sampled_grammar(), .forced = false};
    CounterRandomness random(1);
    AutoregressiveDecoding plain(target);
    for (const Task& task : {sampled, greedy}) {
      EXPECT_THAT([&] { plain.generate(task.request(random)); },
                  ThrowsMessage<Error>(HasSubstr("the target after 4 tokens")));
    }
  }
}

TEST(CudaSamplerTest, WhatTheHostReadsIsDecidedThere) {
  const std::vector<SamplingParams> all = {{.temperature = 1, .repetition_penalty = 1.5},
                                           {.temperature = 1, .logit_bias = {{2, 1.0}}}};
  for (const SamplingParams& sampling : all) {
    const Task task{.prompt = {0, 1}, .sampling = sampling, .stop = {.max_new_tokens = 9}};
    std::vector<Generation> both;
    for (const auto& sampler : {std::shared_ptr<DeviceSampler>(), cuda_sampler(at::kCPU)}) {
      FakeModel target(kSampledVocab, sampled_target());
      target.keep_logits_for(sampler);
      CounterRandomness random(4);
      both.push_back(drawn_chains(target, std::make_unique<RejectionVerifier>())
                         ->generate(task.request(random)));
    }
    EXPECT_EQ(both[0].tokens, both[1].tokens);
    EXPECT_EQ(both[1].steps.front().read_backs, ReadBacks{});
  }
}

/// A draft of one drafted token, which all of the mass below was drawn from.
Draft drawn_draft(Token token, std::vector<double> mass) {
  Draft draft = Draft::root(0);
  draft.add(token, 0);
  draft.probs.emplace_back(std::move(mass));
  draft.child_probs[0] = 0;
  return draft;
}

TEST(CudaSamplerTest, ADraftThatIsNotWhatItSaysIsABug) {
  const auto sampler = cuda_sampler(at::kCPU);
  const SamplingParams sampling{.temperature = 1};
  const Tensor logits = at::zeros({2, 3});
  const auto decide = [&](DeviceRule rule, const Draft& draft) {
    return sampler->decide(logits.narrow(0, 0, std::min<int64_t>(2, draft.size())),
                           {.rule = rule, .draft = draft, .sampling = sampling});
  };
  const Draft drawn = drawn_draft(1, {0.5, 0.0, 0.5});
  for (const DeviceRule rule : {DeviceRule::kRejection, DeviceRule::kBlock}) {
    EXPECT_THROW(decide(rule, drawn), InternalError) << "no mass on the drafted token";
    EXPECT_THROW(decide(rule, drawn_draft(1, {0.5, 0.5})), InternalError) << "another vocabulary";
    EXPECT_TRUE(decide(rule, drawn_draft(1, {0.0, 1.0, 0.0})).has_value());
  }
  Draft tree = Draft::root(0);
  tree.add(1, 0);
  tree.add(2, 0);
  EXPECT_THROW(decide(DeviceRule::kRejection, tree), InternalError) << "three nodes, two rows";
  EXPECT_THROW(sampler->decide(at::zeros({3, 3}),
                               {.rule = DeviceRule::kBlock, .draft = tree, .sampling = sampling}),
               InternalError)
      << "a tree";
}

/// A model on the kernels, whose device memory is the host's.
std::unique_ptr<TransformerModel> emulated_model(const std::filesystem::path& folder) {
  const auto weights =
      load_model(folder, {.dtype = at::kFloat, .place = {at::kCPU, WeightLayout::kRows}});
  return std::make_unique<TransformerModel>(weights, paged_kv(),
                                            TransformerOptions{.ops = cuda_ops(at::kCPU)});
}

/// Drafts a text that goes on behind what is committed, or any tokens behind its end.
std::unique_ptr<Drafter> text_drafter(const std::vector<Token>& text, size_t length) {
  return std::make_unique<ScriptedDrafter>([text, length](TokenSpan committed) {
    std::vector<Token> next;
    for (size_t i = 0; i < length; ++i) {
      const size_t place = committed.size() + i;
      next.push_back(place < text.size() ? text[place] : static_cast<Token>(i + 1));
    }
    return next;
  });
}

class CudaSampledGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  Golden golden_{GetParam()};
  std::vector<Token> text_ = golden_.tokens("tokens");
  Task task_{.prompt = {text_.begin(), text_.begin() + 2},
             .sampling = {.temperature = 0.7, .top_p = 0.95},
             .stop = {.max_new_tokens = 3}};

  Generation generate(LanguageModel& target, Randomness& random) const {
    return SpeculativeDecoding(target, text_drafter(text_, 2),
                               std::make_unique<RejectionVerifier>(),
                               std::make_unique<FixedDraftLength>(2))
        .generate(task_.request(random));
  }
};

TEST_P(CudaSampledGoldenTest, TokensAreTheHosts) {
  const auto model = emulated_model(golden_.folder());
  CounterRandomness random(7);
  const Generation device = generate(*model, random);
  for (const StepStatistics& step : device.steps) {
    EXPECT_EQ(step.read_backs.count, 1);
    EXPECT_LE(step.read_backs.bytes, 8 * 3 + 8);
  }
  TransformerModel on_the_cpu(load_model(golden_.folder(), {.dtype = at::kFloat}), paged_kv());
  const Generation host = generate(on_the_cpu, random);
  EXPECT_EQ(device.tokens, host.tokens);
  EXPECT_EQ(host.steps.front().read_backs, ReadBacks{});
}

// What decides is the same for all families.
INSTANTIATE_TEST_SUITE_P(All, CudaSampledGoldenTest,
                         testing::ValuesIn(found_golden({"gemma2-a", "gemma3n-a", "gemma4-moe-a",
                                                         "llama-a"})),
                         ParameterName());

TEST(CudaSamplerTest, DraftsLongerThanTheWindowAreVerified) {
  const Golden golden("gemma3-a");
  const auto tokens = golden.tokens("tokens");
  const Task task{.prompt = {tokens.begin(), tokens.begin() + 3},
                  .sampling = {.temperature = 1},
                  .stop = {.max_new_tokens = 9}};
  TransformerModel on_the_cpu(load_model(golden.folder(), {.dtype = at::kFloat}), paged_kv());
  CounterRandomness random(11);
  const Generation plain = AutoregressiveDecoding(on_the_cpu).generate(task.request(random));
  std::vector<Token> text = task.prompt;
  text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
  const auto model = emulated_model(golden.folder());  // whose window holds 5 tokens
  const Generation drafted =
      SpeculativeDecoding(*model, text_drafter(text, 7), std::make_unique<SampleMatchVerifier>(),
                          std::make_unique<FixedDraftLength>(7))
          .generate(task.request(random));
  EXPECT_EQ(drafted.tokens, plain.tokens);
  ASSERT_EQ(drafted.steps.size(), 1U);
  EXPECT_EQ(drafted.steps.front().accepted, 7);
}

}  // namespace
}  // namespace specdec
