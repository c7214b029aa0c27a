// Drafters that live on the target, over tiny float64 Gemmas with random heads: the output's
// distribution is the target's, and what they draft with is what the heads' plain forwards give on
// the text so far.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "core/error.h"
#include "core/transformer/heads/feature_model.h"
#include "core/transformer/heads/head_reference.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/feature_drafter.h"
#include "decoders/drafters/self_drafter.h"
#include "decoders/shapes/draft_growth.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/dynamic_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"
#include "tests/support/draft_bench.h"
#include "tests/support/error_message.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<Token>;
using Target = std::shared_ptr<TransformerWeights>;

double difference(const Tensor& a, const Tensor& b) {
  const Tensor same = a.eq(b);  // infinities
  return (a - b).masked_fill(same, 0.0).abs().max().item<double>();
}

Tensor as_row(const Tokens& tokens) {
  return at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()), at::kLong).unsqueeze(0);
}

/// What a head drafted with, as its shape saw it.
struct Seen {
  Tokens committed;
  Tokens path;  // drafted tokens up to the node, the root left out
  Tensor logits;
};

/// Trees of up to two children a node, two or `depth` levels deep, in steps of changing size; some
/// steps are plain. Records every distribution.
class RecordingShape final : public DraftShape {
 public:
  RecordingShape(int64_t branches, std::vector<int64_t> depths, std::vector<Seen>* seen)
      : branches_(branches), depths_(std::move(depths)), seen_(seen) {}

  void reset() override { step_ = 0; }
  DraftLimits next(int64_t) override {
    const int64_t depth = depths_[step_++ % depths_.size()];
    return {.tokens = branches_ == 1 ? depth : 4 * depth, .depth = depth, .branches = branches_};
  }
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override {
    DraftGrowth growth(context, distribution, siblings);
    std::vector<int64_t> level = {0};
    while (!level.empty()) {
      growth.expand(level);
      std::vector<int64_t> deeper;
      for (const int64_t node : level) {
        record(context, growth.draft(), node, growth.logits(node));
        const std::vector<int64_t> children = growth.add_children(node, branches_);
        deeper.insert(deeper.end(), children.begin(), children.end());
      }
      level = deeper;
    }
    return std::move(growth).finish();
  }
  bool branches() const override { return branches_ > 1; }

 private:
  void record(const DraftContext& context, const Draft& draft, int64_t node, const Tensor& logits) {
    if (seen_ == nullptr || !logits.defined()) {
      return;
    }
    Seen seen{{context.committed.begin(), context.committed.end()}, {}, logits.clone()};
    for (int64_t i = node; i > 0; i = draft.parents[static_cast<size_t>(i)]) {
      seen.path.insert(seen.path.begin(), draft.tokens[static_cast<size_t>(i)]);
    }
    seen_->push_back(std::move(seen));
  }

  int64_t branches_;
  std::vector<int64_t> depths_;
  size_t step_ = 0;
  std::vector<Seen>* seen_;
};

/// A drafter on a target, and the distribution that its head's plain forward gives after committed
/// tokens and a drafted path.
struct HeadCase {
  std::string name;
  std::function<Target(int64_t vocab)> target = [](int64_t vocab) { return tiny_gemma(vocab); };
  std::function<std::unique_ptr<Drafter>(const Target&, TransformerModel&)> make;
  std::function<Tensor(const Target&, const Tokens& committed, const Tokens& path)>
      plain_distribution;
};

void PrintTo(const HeadCase& one, std::ostream* out) { *out << one.name; }

std::shared_ptr<EagleHead> eagle_head(const TransformerWeights& target, EagleVersion version,
                                      LayerStyle style, bool after_norm) {
  EagleConfig config = make_eagle_config(version, style, target);
  config.feature_after_norm = after_norm;
  config.plan.window = style == LayerStyle::kGemma ? 5 : 0;
  if (style == LayerStyle::kGemma4) {
    config.plan.values = ValueKind::kRawKeys;
    config.plan.rope.rotated_pairs = 2;
    config.soft_cap = 4.0;
  }
  if (version == EagleVersion::kEagle3) {
    config.draft_vocab_size = target.config.vocab_size - 1;
  }
  auto head = random_eagle_head(config, {.seed = 8, .dtype = at::kDouble});
  if (version == EagleVersion::kEagle3) {  // all but token 0, in reverse
    head->target_ids = target.config.vocab_size - 1 - at::arange(config.draft_vocab_size);
  }
  return head;
}

Tensor plain_eagle_distribution(const TransformerWeights& target, const EagleHead& head,
                                const Tokens& committed, const Tokens& path) {
  Tokens all = committed;
  all.insert(all.end(), path.begin(), path.end());
  const auto known = static_cast<int64_t>(committed.size()) - 1;
  const Tensor tokens = as_row(all);
  Tensor features = target_features(reference_forward(unpack(target), tokens.narrow(1, 0, known)),
                                    eagle_capture_layers(head.config, target.config));
  UnrolledKeys past;
  HeadOutputs out;
  for (int64_t step = 0; step <= static_cast<int64_t>(path.size()); ++step) {
    out = eagle_reference(head, unpack(target),
                          {.tokens = tokens.narrow(1, 1 + step, known),
                           .features = features,
                           .own_features = step > 0,
                           .unrolled = &past});
    features = out.features;
  }
  const Tensor logits = out.logits[0][known - 1];
  if (!head.target_ids.defined()) {
    return logits;
  }
  return at::full({target.config.vocab_size}, -INFINITY, at::kDouble)
      .index_copy(0, head.target_ids, logits);
}

HeadCase eagle(const std::string& name, EagleVersion version, LayerStyle style, bool after_norm,
               bool sample) {
  HeadCase row;
  row.name = name;
  row.make = [=](const Target& target, TransformerModel&) {
    const auto head = eagle_head(*target, version, style, after_norm);
    std::vector<std::unique_ptr<LanguageModel>> modules;
    modules.push_back(make_eagle_model(head, target, paged_kv()));
    return std::make_unique<FeatureDrafter>(
        std::move(modules),
        FeatureDrafterOptions{.sample = sample,
                              .capture_layers = eagle_capture_layers(head->config, target->config),
                              .hidden_size = 16});
  };
  row.plain_distribution = [=](const Target& target, const Tokens& committed, const Tokens& path) {
    return plain_eagle_distribution(*target, *eagle_head(*target, version, style, after_norm),
                                    committed, path);
  };
  return row;
}

Tensor plain_mtp_distribution(const TransformerWeights& target, const MtpHead& head,
                              const Tokens& committed, const Tokens& path) {
  Tokens all = committed;
  all.insert(all.end(), path.begin(), path.end());
  const auto known = static_cast<int64_t>(committed.size()) - 1;
  const Tensor tokens = as_row(all);
  Tensor features = reference_forward(unpack(target), tokens.narrow(1, 0, known)).hidden;
  UnrolledKeys past;
  HeadOutputs out;
  for (size_t step = 0; step <= path.size(); ++step) {
    const size_t module = std::min(step, head.layers.size() - 1);
    past = module == step ? UnrolledKeys() : past;  // each module has keys of its own
    out = mtp_reference(head, unpack(target), module,
                        {.tokens = tokens.narrow(1, 1 + static_cast<int64_t>(step), known),
                         .features = features,
                         .own_features = step > 0,
                         .unrolled = &past});
    features = out.features;
  }
  return out.logits[0][known - 1];
}

HeadCase mtp(const std::string& name, int64_t modules) {
  HeadCase row;
  row.name = name;
  const auto head_of = [=](const TransformerWeights& target) {
    return random_mtp_head(target, modules, {.seed = 6, .dtype = at::kDouble});
  };
  row.make = [=](const Target& target, TransformerModel&) {
    const auto head = head_of(*target);
    std::vector<std::unique_ptr<LanguageModel>> models;
    for (size_t i = 0; i < head->layers.size(); ++i) {
      models.push_back(make_mtp_model(head, i, target, paged_kv()));
    }
    return std::make_unique<FeatureDrafter>(std::move(models),
                                            FeatureDrafterOptions{.hidden_size = 16});
  };
  row.plain_distribution = [=](const Target& target, const Tokens& committed, const Tokens& path) {
    return plain_mtp_distribution(*target, *head_of(*target), committed, path);
  };
  return row;
}

HeadCase self(const std::string& name, const SelfDrafterOptions& options) {
  HeadCase row;
  row.name = name;
  row.make = [=](const Target&, TransformerModel& model) {
    return std::make_unique<SelfDrafter>(model, options);
  };
  row.plain_distribution = [=](const Target& target, const Tokens& committed, const Tokens& path) {
    Tokens all = committed;
    all.insert(all.end(), path.begin(), path.end());
    const Tensor stream = reference_forward(unpack(*target), as_row(all))
                              .layers[static_cast<size_t>(options.layers - 1)];
    const Tensor last = stream[0][stream.size(1) - 1];
    return reference_head(unpack(*target),
                          reference_norm(last, target->final_norm, target->config.rms_norm_eps));
  };
  return row;
}

/// EAGLE-3 on a Gemma 4 (see tiny_gemma4), whose streams it taps.
HeadCase eagle_on(const std::string& kind, LayerStyle style) {
  const bool deep_spec = style == LayerStyle::kGemma4;
  HeadCase row = eagle("eagle3_on_" + kind + (deep_spec ? "_deepspec" : ""), EagleVersion::kEagle3,
                       style, true, true);
  row.target = [kind](int64_t vocab) { return tiny_gemma4(kind, vocab); };
  return row;
}

std::vector<HeadCase> cases() {
  return {
      eagle("eagle", EagleVersion::kEagle, LayerStyle::kLlama, true, true),
      eagle("eagle_before_norm", EagleVersion::kEagle, LayerStyle::kGemma, false, true),
      eagle("eagle3", EagleVersion::kEagle3, LayerStyle::kLlama, true, true),
      eagle("eagle3_best", EagleVersion::kEagle3, LayerStyle::kGemma, true, false),
      mtp("mtp", 1),
      mtp("mtp_two_modules", 2),
      mtp("mtp_three_modules", 3),
      self("self", {.layers = 1}),
      self("self_two_layers", {.layers = 2}),
      eagle_on("dense", LayerStyle::kLlama),
      eagle_on("dense", LayerStyle::kGemma4),
      eagle_on("e", LayerStyle::kQwen3),
      eagle_on("moe", LayerStyle::kGemma4),
      eagle_on("3n", LayerStyle::kLlama),
  };
}

class HeadDraftersTest : public testing::TestWithParam<HeadCase> {
 protected:
  HeadDraftersTest() {
    at::set_num_threads(1);  // the tensors are tiny; waiting for a second thread costs more
  }

  std::unique_ptr<SpeculativeDecoding> strategy(const Target& target, TransformerModel& model,
                                                int64_t branches, std::vector<int64_t> depths,
                                                std::vector<Seen>* seen = nullptr) const {
    return std::make_unique<SpeculativeDecoding>(
        model, GetParam().make(target, model), std::make_unique<RejectionVerifier>(),
        std::make_unique<RecordingShape>(branches, std::move(depths), seen));
  }
};

TEST_P(HeadDraftersTest, TheOutputsDistributionIsTheTargets) {
  const auto target = GetParam().target(3);
  TransformerModel model(target, paged_kv());
  TransformerModel oracle(target, paged_kv());
  const LogitTable table = [&](TokenSpan history) {
    const Tensor logits = oracle.prefill_get_last_logits(history);
    return std::vector<double>(logits.const_data_ptr<double>(),
                               logits.const_data_ptr<double>() + logits.numel());
  };
  const Task task{
      .prompt = {1, 2}, .sampling = {.temperature = 0.8}, .stop = {.max_new_tokens = 4}};
  const SequenceDistribution expected = reference_distribution(table, task);
  EXPECT_LE(max_difference(exact_distribution(*strategy(target, model, 1, {2, 1}), task), expected),
            1e-12);
  const Task shorter{
      .prompt = {2}, .sampling = {.temperature = 1.0}, .stop = {.max_new_tokens = 3}};
  EXPECT_LE(max_difference(exact_distribution(*strategy(target, model, 2, {2}), shorter),
                           reference_distribution(table, shorter)),
            1e-12);
}

TEST_P(HeadDraftersTest, GreedyTokensAreTheTargets) {
  const auto target = GetParam().target(11);
  TransformerModel model(target, paged_kv());
  CounterRandomness random(1);
  const Task task{.prompt = {3, 1, 4}, .stop = {.max_new_tokens = 40}};
  const Tokens plain = AutoregressiveDecoding(model).generate(task.request(random)).tokens;
  for (const int64_t branches : {1, 2}) {
    const auto speculative = strategy(target, model, branches, {3, 1, 0, 2});
    EXPECT_EQ(speculative->generate(task.request(random)).tokens, plain) << branches;
    EXPECT_EQ(speculative->generate(task.request(random)).tokens, plain) << "again";
  }
}

TEST_P(HeadDraftersTest, EveryDistributionIsThatOfAFreshPlainForward) {
  // After skips, rejections and acceptances, across the windows.
  const auto target = GetParam().target(5);
  TransformerModel model(target, paged_kv());
  for (const int64_t branches : {1, 2}) {
    std::vector<Seen> seen;
    const auto speculative = strategy(target, model, branches, {3, 0, 1, 2, 0, 0, 4}, &seen);
    CounterRandomness random(static_cast<uint64_t>(branches));
    const Task task{
        .prompt = {3, 1}, .sampling = {.temperature = 1.0}, .stop = {.max_new_tokens = 24}};
    speculative->generate(task.request(random));
    ASSERT_GT(seen.size(), 10U);
    for (const Seen& one : seen) {
      const Tensor plain = GetParam().plain_distribution(target, one.committed, one.path);
      ASSERT_LE(difference(one.logits, plain), 1e-10)
          << one.committed.size() << " committed, depth " << one.path.size();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HeadDraftersTest, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(FeatureDrafterTest, TargetsThatCannotServeAreRefused) {
  const auto target = tiny_gemma(5);
  TransformerModel model(target, paged_kv());
  const auto drafter = [&](int64_t hidden, std::vector<int64_t> layers) {
    std::vector<std::unique_ptr<LanguageModel>> modules;
    modules.push_back(
        make_mtp_model(random_mtp_head(*target, 1, {.dtype = at::kDouble}), 0, target, paged_kv()));
    return FeatureDrafter(std::move(modules), {.capture_layers = layers, .hidden_size = hidden});
  };
  const auto refusal = [](const FeatureDrafter& one, const LanguageModel& whom) {
    return error_message<ConfigError>([&] { one.check(whom); });
  };
  EXPECT_EQ(refusal(drafter(16, {0, 2}), model), "no error");
  EXPECT_THAT(refusal(drafter(24, {}), model), HasSubstr("hidden size 24"));
  EXPECT_THAT(refusal(drafter(16, {3}), model), HasSubstr("layers 0 to 2"));
  const FakeModel fake(5, random_table(5, 1));
  EXPECT_THAT(refusal(drafter(16, {}), fake), HasSubstr("hidden states"));
  TransformerModel other(tiny_gemma(6), paged_kv());
  EXPECT_THAT(refusal(drafter(16, {}), other), HasSubstr("vocabulary of 5"));
}

TEST(SelfDrafterTest, TargetsThatCannotServeAreRefused) {
  FakeModel fake(5, random_table(5, 1));
  EXPECT_THAT(error_message<ConfigError>([&] { SelfDrafter(fake, {}).check(fake); }),
              HasSubstr("cannot"));
  TransformerModel model(tiny_gemma(5), paged_kv());
  EXPECT_THAT(error_message<ConfigError>([&] { SelfDrafter(model, {.layers = 3}).check(model); }),
              HasSubstr("1 to 2"));
}

TEST(SelfDrafterTest, LayersAreTheFirstOnesOrAllButSome) {
  EXPECT_EQ(drafting_layers({.layers = 2}, 5), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(drafting_layers({.skip = {3, 1}}, 5), (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(drafting_layers({.layers = 4, .skip = {1}}, 5), (std::vector<int64_t>{0, 2, 3}));
  const auto refusal = [](const SelfDrafterOptions& options) {
    return error_message<ConfigError>([&] { (void)drafting_layers(options, 5); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("all of the target's 5 layers"));
  EXPECT_THAT(refusal({.layers = 5}), HasSubstr("1 to 4"));
  EXPECT_THAT(refusal({.layers = 6}), HasSubstr("layers is 6"));
  EXPECT_THAT(refusal({.skip = {5}}), HasSubstr("layers from 0 to 4"));
  EXPECT_THAT(refusal({.skip = {1, 1}}), HasSubstr("each once"));
  EXPECT_THAT(refusal({.layers = 1, .skip = {0}}), HasSubstr("none of the target's"));
}

TEST(SelfDrafterTest, SkippedLayersSeeTheTargetsOwnKeys) {
  // Without committed tokens but the root there is nothing that the whole target has evaluated: the
  // drafter is then the model without these layers.
  const auto target = tiny_gemma(11, at::kDouble);
  auto shorter = std::make_shared<TransformerWeights>(*target);
  shorter->plan.erase(shorter->plan.begin() + 1);
  shorter->layers.erase(shorter->layers.begin() + 1);
  TransformerModel model(target, paged_kv());
  SelfDrafter drafter(model, {.skip = {1}});
  DraftBench bench;
  FixedDraftLength shape(4);
  const Tokens committed = {3};
  const Draft draft = drafter.propose(bench.context(committed, shape, {4, 4, 1}));
  ASSERT_EQ(draft.proposed(), 4);
  TransformerModel alone(shorter, paged_kv());
  Token newest = 3;
  for (size_t node = 1; node < draft.tokens.size(); ++node) {
    const Tokens next = {newest};
    newest = (node == 1 ? alone.prefill_get_last_logits(next) : alone.decode_get_logits(next))
                 .argmax()
                 .item<Token>();
    EXPECT_EQ(draft.tokens[node], newest) << node;
  }
}

TEST(SelfDrafterTest, NearTheContextsEndItEvaluatesNoMoreThanFits) {
  const auto weights = tiny_gemma(11);
  for (int64_t max_length = 10; max_length < 18; ++max_length) {
    TransformerModel target(weights, paged_kv(), {.max_length = max_length});
    SpeculativeDecoding decoding(
        target, std::make_unique<SelfDrafter>(target, SelfDrafterOptions{.layers = 1}),
        std::make_unique<ExactMatchVerifier>(), std::make_unique<DynamicTreeShape>());
    const Task task{.prompt = {3, 1, 4, 1, 5}, .stop = {.max_new_tokens = 40}};
    CounterRandomness random(1);
    const Generation generation = decoding.generate(task.request(random));
    EXPECT_EQ(generation.stop_reason, StopReason::kContextFull);
    EXPECT_EQ(std::ssize(generation.tokens), max_length - 4);
  }
}

TEST(SelfDrafterTest, TokensThatNobodyEvaluatedYetComeBeforeTheRoot) {
  const auto weights = tiny_gemma(11);
  const Tokens prompt = {3, 1, 4, 1, 5};
  const auto drafted = [&](size_t evaluated) {
    TransformerModel target(weights, paged_kv());
    target.prefill_get_last_logits(TokenSpan(prompt).first(evaluated));
    SelfDrafter drafter(target, {.layers = 2});
    DraftBench bench;
    FixedDraftLength shape(3);
    const Draft draft = drafter.propose(bench.context(prompt, shape, {3, 3, 1}));
    EXPECT_EQ(target.pending(), 0);
    return draft.tokens;
  };
  EXPECT_EQ(drafted(2), drafted(4)) << "as when a grammar has forced two of them";
}

TEST(SelfDrafterTest, DraftingLeavesNoTrace) {
  const auto target = tiny_gemma(11, at::kFloat);
  TransformerModel drafted(target, paged_kv());
  TransformerModel untouched(target, paged_kv());
  const Tokens prompt = {3, 1, 4, 1, 5, 9, 2, 6};
  drafted.prefill_get_last_logits(prompt);
  untouched.prefill_get_last_logits(prompt);
  Tokens committed = prompt;
  committed.push_back(5);
  SelfDrafter drafter(drafted, {.layers = 2});
  DraftBench bench;
  FixedDraftLength shape(3);
  const Draft draft = drafter.propose(bench.context(committed, shape, {3, 3, 1}));
  EXPECT_EQ(draft.proposed(), 3);
  EXPECT_EQ(drafted.pending(), 0);
  EXPECT_TRUE(at::equal(drafted.verify_get_logits(draft), untouched.verify_get_logits(draft)));
}

}  // namespace
}  // namespace specdec
