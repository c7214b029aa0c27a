// Drafters that live on the target's features, of which one proposes at a time.
#include "decoders/drafters/drafter_group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "core/transformer/heads/drafting_functions.h"
#include "core/transformer/heads/feature_model.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/feature_drafter.h"
#include "decoders/drafters/medusa.h"
#include "decoders/shapes/draft_growth.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "docs/examples/ucb_drafter.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/target_table.h"
#include "tests/support/tiny_gemma.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using GroupTarget = std::shared_ptr<TransformerWeights>;
using Members = std::vector<std::unique_ptr<Drafter>>;

std::unique_ptr<Drafter> group_eagle(const GroupTarget& target, EagleVersion version) {
  const EagleConfig config = make_eagle_config(version, LayerStyle::kLlama, *target);
  const auto head = random_eagle_head(config, {.seed = 8, .dtype = at::kDouble});
  std::vector<std::unique_ptr<LanguageModel>> modules;
  modules.push_back(make_eagle_model(head, target, paged_kv()));
  return std::make_unique<FeatureDrafter>(
      std::move(modules),
      FeatureDrafterOptions{.capture_layers = eagle_capture_layers(config, target->config),
                            .hidden_size = 16});
}

std::unique_ptr<Drafter> group_mtp(const GroupTarget& target) {
  const auto head = random_mtp_head(*target, 2, {.seed = 6, .dtype = at::kDouble});
  std::vector<std::unique_ptr<LanguageModel>> modules;
  for (size_t i = 0; i < head->layers.size(); ++i) {
    modules.push_back(make_mtp_model(head, i, target, paged_kv()));
  }
  return std::make_unique<FeatureDrafter>(std::move(modules),
                                          FeatureDrafterOptions{.hidden_size = 16});
}

std::unique_ptr<Drafter> group_medusa(const GroupTarget& target) {
  auto head = std::make_shared<MedusaHead>(
      new_medusa_head({.num_heads = 3, .num_layers = 1, .share_lm_head = true}, unpack(*target),
                      target->weight_dtype));
  RandomTensors random({.seed = 4, .dtype = target->weight_dtype});
  for (auto& blocks : head->blocks) {
    blocks[0].weight = random.matrix(16, 16);
  }
  return std::make_unique<MedusaDrafter>(
      drafting_heads(std::make_shared<MedusaModel>(*head, target)));
}

/// Drafters of every kind that reads hidden states.
Members feature_drafters(const GroupTarget& target) {
  Members members;
  members.push_back(group_eagle(target, EagleVersion::kEagle));
  members.push_back(group_eagle(target, EagleVersion::kEagle3));
  members.push_back(group_mtp(target));
  members.push_back(group_medusa(target));
  return members;
}

/// Chains of changing length, some steps without any; keeps the logits of the newest draft.
class NotedChain final : public DraftShape {
 public:
  explicit NotedChain(std::vector<Tensor>* logits) : logits_(logits) {}
  void reset() override { step_ = 0; }
  DraftLimits next(int64_t /*context*/) override {
    const std::vector<int64_t> lengths = {3, 1, 0, 2, 4, 0, 0, 3};
    const int64_t length = lengths[step_++ % lengths.size()];
    return {.tokens = length, .depth = length, .branches = 1};
  }
  Draft grow(const DraftContext& context, ChildDistribution& distribution,
             Siblings siblings) override {
    logits_->clear();
    DraftGrowth growth(context, distribution, siblings);
    std::vector<int64_t> node = {0};
    while (!node.empty()) {
      growth.expand(node);
      const Tensor logits = growth.logits(node.front());
      if (logits.defined()) {
        logits_->push_back(logits.clone());
      }
      node = growth.add_children(node.front(), 1);
    }
    return std::move(growth).finish();
  }
  bool branches() const override { return false; }

 private:
  std::vector<Tensor>* logits_;
  size_t step_ = 0;
};

/// Asks the members of its first half in turn, each for some steps, and compares their drafts with
/// those of the second half, which are asked in every step.
class TwinnedGroup final : public DrafterGroup {
 public:
  TwinnedGroup(Members members, const std::vector<Tensor>* logits, int64_t* compared)
      : DrafterGroup(std::move(members)), logits_(logits), compared_(compared) {}
  void reset() override {
    DrafterGroup::reset();
    step_ = 0;
  }
  Draft propose(const DraftContext& context) override {
    constexpr size_t kTurn = 3;
    const size_t half = members() / 2;
    const size_t chosen = step_++ / kTurn % half;
    Draft draft;
    std::vector<Tensor> logits;
    for (size_t member = 0; member < half; ++member) {
      if (member == chosen) {
        draft = ask(member, context);
        logits = *logits_;
      } else {
        skip_by(member, context);
      }
    }
    for (size_t member = 0; member < half; ++member) {
      const Draft twin = ask(half + member, context);
      if (member == chosen) {
        compare(draft, logits, twin, member);
      }
    }
    return draft;
  }

 private:
  void compare(const Draft& draft, const std::vector<Tensor>& logits, const Draft& twin,
               size_t member) {
    EXPECT_EQ(draft.tokens, twin.tokens) << member;
    ASSERT_EQ(logits.size(), logits_->size()) << member;
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_TRUE(at::equal(logits[i], (*logits_)[i])) << member << " at depth " << i;
    }
    ++*compared_;
  }

  const std::vector<Tensor>* logits_;
  int64_t* compared_;
  size_t step_ = 0;
};

TEST(DrafterGroupTest, AMemberDraftsAsIfItWereAskedInEveryStep) {
  const auto target = tiny_gemma(11, at::kDouble);
  TransformerModel model(target, paged_kv());
  Members members = feature_drafters(target);
  for (auto& twin : feature_drafters(target)) {
    members.push_back(std::move(twin));
  }
  std::vector<Tensor> logits;
  int64_t compared = 0;
  SpeculativeDecoding decoding(
      model, std::make_unique<TwinnedGroup>(std::move(members), &logits, &compared),
      std::make_unique<ExactMatchVerifier>(), std::make_unique<NotedChain>(&logits));
  const Task task{.prompt = {3, 1, 4}, .stop = {.max_new_tokens = 40}};
  CounterRandomness random(1);
  const auto plain = AutoregressiveDecoding(model).generate(task.request(random)).tokens;
  for (const char* request : {"first", "second"}) {
    compared = 0;
    EXPECT_EQ(decoding.generate(task.request(random)).tokens, plain) << request;
    EXPECT_GT(compared, 15) << request;
  }
}

/// Notes who proposed.
class NotedUse final : public DrafterGroup {
 public:
  NotedUse(std::unique_ptr<Drafter> drafter, int64_t* drafts)
      : DrafterGroup(only(std::move(drafter))), drafts_(drafts) {}
  Draft propose(const DraftContext& context) override {
    ++*drafts_;
    return propose_by(0, context);
  }

 private:
  static Members only(std::unique_ptr<Drafter> drafter) {
    Members members;
    members.push_back(std::move(drafter));
    return members;
  }

  int64_t* drafts_;
};

TEST(UcbDrafterTest, GreedyTokensAreTheTargetsAndEachDrafterIsTried) {
  const auto target = tiny_gemma(11, at::kDouble);
  TransformerModel model(target, paged_kv());
  const Task task{.prompt = {3, 1, 4}, .stop = {.max_new_tokens = 40}};
  CounterRandomness random(1);
  const auto plain = AutoregressiveDecoding(model).generate(task.request(random)).tokens;
  std::vector<int64_t> drafts(4, 0);
  Members members;
  for (auto& drafter : feature_drafters(target)) {
    members.push_back(std::make_unique<NotedUse>(std::move(drafter), &drafts[members.size()]));
  }
  SpeculativeDecoding decoding(model, std::make_unique<UcbDrafter>(std::move(members), 0.5),
                               std::make_unique<ExactMatchVerifier>(),
                               std::make_unique<FixedDraftLength>(2));
  const Generation first = decoding.generate(task.request(random));
  EXPECT_EQ(first.tokens, plain);
  EXPECT_THAT(drafts, testing::Each(testing::Gt(0)));
  EXPECT_EQ(decoding.generate(task.request(random)).steps.size(), first.steps.size())
      << "each request begins anew";
}

TEST(UcbDrafterTest, TheSampledDistributionIsTheTargets) {
  const auto target = tiny_gemma(3, at::kDouble);
  TransformerModel model(target, paged_kv());
  Members members;
  members.push_back(group_eagle(target, EagleVersion::kEagle3));
  members.push_back(group_mtp(target));
  SpeculativeDecoding decoding(model, std::make_unique<UcbDrafter>(std::move(members), 1.0),
                               std::make_unique<RejectionVerifier>(),
                               std::make_unique<FixedDraftLength>(1));
  const Task task{
      .prompt = {1, 2}, .sampling = {.temperature = 0.8}, .stop = {.max_new_tokens = 5}};
  EXPECT_LE(max_difference(exact_distribution(decoding, task),
                           reference_distribution(target_table(target), task)),
            kSameDistribution);
}

/// Proposes a token, of which none may be right.
class OneTokenDrafter final : public Drafter {
 public:
  OneTokenDrafter(Token token, int64_t* drafts) : token_(token), drafts_(drafts) {}
  Draft propose(const DraftContext& context) override {
    ++*drafts_;
    Draft draft = Draft::root(context.committed.back());
    if (token_ >= 0) {
      draft.add(token_, 0);
    }
    return draft;
  }

 private:
  Token token_;
  int64_t* drafts_;
};

TEST(UcbDrafterTest, ADrafterThatIsAcceptedProposesMost) {
  constexpr int64_t kTokens = 6;
  // Token 4 always comes next; -1 proposes nothing.
  FakeModel target(kTokens, [](TokenSpan) { return std::vector<double>{0, 1, 2, 1, 9, 0}; });
  std::map<Token, int64_t> drafts;
  Members members;
  for (const Token token : {-1, 1, 4, 2}) {
    members.push_back(std::make_unique<OneTokenDrafter>(token, &drafts[token]));
  }
  SpeculativeDecoding decoding(target, std::make_unique<UcbDrafter>(std::move(members), 0.2),
                               std::make_unique<ExactMatchVerifier>(),
                               std::make_unique<FixedDraftLength>(1));
  const Task task{.prompt = {1, 2}, .stop = {.max_new_tokens = 40}};
  CounterRandomness random(1);
  decoding.generate(task.request(random));
  EXPECT_EQ(drafts[-1], 1);
  EXPECT_EQ(drafts[1], 1);
  EXPECT_EQ(drafts[2], 1);
  EXPECT_GT(drafts[4], 10);
}

TEST(DrafterGroupTest, NoMemberIsRefused) {
  EXPECT_THAT(error_message<ConfigError>([] { UcbDrafter({}, 1.0); }),
              HasSubstr("at least one drafter"));
}

TEST(DrafterGroupTest, NeedsAreThoseOfAllMembers) {
  const auto target = tiny_gemma(5, at::kDouble);
  const UcbDrafter both(feature_drafters(target), 1.0);
  const Drafter& group = both;
  EXPECT_TRUE(group.needs().internals);
  EXPECT_TRUE(group.needs().prompt_states) << "not of Medusa heads alone";
  EXPECT_FALSE(group.needs().logits);
  EXPECT_EQ(group.needs().capture_layers,
            group_eagle(target, EagleVersion::kEagle3)->needs().capture_layers);
  Members medusa;
  medusa.push_back(group_medusa(target));
  const UcbDrafter alone(std::move(medusa), 1.0);
  EXPECT_EQ(static_cast<const Drafter&>(alone).needs().prompt_states,
            group_medusa(target)->needs().prompt_states);
}

}  // namespace
}  // namespace specdec
