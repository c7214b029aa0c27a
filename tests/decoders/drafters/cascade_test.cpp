#include "decoders/drafters/cascade.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "tests/support/retrieval.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/test_drafters.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

/// Proposes a chain; notes what it is told.
class NotingDrafter final : public Drafter {
 public:
  struct Notes {
    int64_t proposed = 0;
    int64_t skipped = 0;
    int64_t resets = 0;
    int64_t max_depth = 0;               // of the last proposal
    std::vector<double> first_captured;  // of the last step's root, layer by layer
    std::vector<int64_t> prompt_sizes;   // of the captured layers
  };

  NotingDrafter(Tokens chain, Notes* notes, Needs needs = {}, bool draws = false)
      : chain_(std::move(chain)), notes_(notes), needs_(std::move(needs)), draws_(draws) {}
  Needs needs() const override { return needs_; }
  bool draws() const override { return draws_; }
  void check(const LanguageModel& target) const override {
    if (target.vocab_size() > 100) {
      throw ConfigError("too large");
    }
  }
  void reset() override { ++notes_->resets; }
  void skip(const DraftContext& context) override {
    ++notes_->skipped;
    EXPECT_EQ(context.max_tokens, 0);
    look(context);
  }
  Draft propose(const DraftContext& context) override {
    ++notes_->proposed;
    notes_->max_depth = context.max_depth;
    look(context);
    Draft draft = Draft::root(context.committed.back());
    for (const Token token : chain_) {
      if (draft.proposed() < context.max_tokens) {
        draft.add(token, draft.size() - 1);
      }
    }
    return draft;
  }

 private:
  void look(const DraftContext& context) {
    if (context.last_step != nullptr && !needs_.capture_layers.empty()) {
      notes_->first_captured.clear();
      for (const Tensor& layer : context.last_step->result.captured) {
        notes_->first_captured.push_back(layer[0][0].item<double>());
      }
    }
    if (context.prompt_result != nullptr && !needs_.capture_layers.empty()) {
      notes_->prompt_sizes.clear();
      for (const Tensor& layer : context.prompt_result->captured) {
        notes_->prompt_sizes.push_back(layer.size(0));
      }
    }
  }

  Tokens chain_;
  Notes* notes_;
  Needs needs_;
  bool draws_;
};

std::unique_ptr<CascadeDrafter> cascade(std::vector<CascadeMember> members) {
  return std::make_unique<CascadeDrafter>(std::move(members));
}

CascadeMember member(std::unique_ptr<Drafter> drafter, int64_t min_tokens = 1) {
  return {std::move(drafter), min_tokens};
}

std::unique_ptr<CascadeDrafter> of_two(std::unique_ptr<Drafter> a, int64_t min_tokens,
                                       std::unique_ptr<Drafter> b) {
  std::vector<CascadeMember> members;
  members.push_back(member(std::move(a), min_tokens));
  members.push_back(member(std::move(b)));
  return cascade(std::move(members));
}

TEST(CascadeTest, TheFirstWithEnoughToSayProposes) {
  NotingDrafter::Notes a;
  NotingDrafter::Notes b;
  const auto propose = [&](const Tokens& first, int64_t min_tokens) {
    const auto drafter = of_two(std::make_unique<NotingDrafter>(first, &a), min_tokens,
                                std::make_unique<NotingDrafter>(Tokens{7}, &b));
    return propose_within(*drafter, Tokens{1}, {4, 4, 1}).tokens;
  };
  EXPECT_EQ(propose({5, 6}, 1), (Tokens{1, 5, 6}));
  EXPECT_EQ(b.proposed, 0);
  EXPECT_EQ(b.skipped, 1) << "it is told that it is not asked";
  EXPECT_EQ(propose({5, 6}, 2), (Tokens{1, 5, 6}));
  EXPECT_EQ(propose({5, 6}, 3), (Tokens{1, 7}));
  EXPECT_EQ(propose({}, 1), (Tokens{1, 7}));
  EXPECT_EQ(b.proposed, 2);
  EXPECT_EQ(a.skipped, 0) << "it was asked, and passed";
}

TEST(CascadeTest, AStepThatAllowsFewTokensStillAsksTheFirst) {
  NotingDrafter::Notes notes;
  const auto propose = [&](const Tokens& first, int64_t allowed) {
    const auto drafter = of_two(std::make_unique<NotingDrafter>(first, &notes), 3,
                                std::make_unique<NotingDrafter>(Tokens{7}, &notes));
    return propose_within(*drafter, Tokens{1}, {allowed, allowed, 1}).tokens;
  };
  EXPECT_EQ(propose({4, 5, 6}, 3), (Tokens{1, 4, 5, 6}));
  EXPECT_EQ(propose({4, 5, 6}, 2), (Tokens{1, 4, 5})) << "three would have been enough";
  EXPECT_EQ(propose({4, 5}, 3), (Tokens{1, 7}));
  EXPECT_EQ(propose({4}, 2), (Tokens{1, 7}));
  EXPECT_EQ(propose({4, 5}, 0).size(), 1U);
}

TEST(CascadeTest, AMemberDraftsNoMoreThanItsMaxTokens) {
  NotingDrafter::Notes notes;
  const auto propose = [&](int64_t max_tokens, int64_t allowed) {
    std::vector<CascadeMember> members;
    members.push_back({std::make_unique<NotingDrafter>(Tokens{5, 6, 7}, &notes), 1, max_tokens});
    const auto drafter = cascade(std::move(members));
    return propose_within(*drafter, Tokens{1}, {allowed, allowed, 1}).tokens;
  };
  EXPECT_EQ(propose(2, 4), (Tokens{1, 5, 6}));
  EXPECT_EQ(notes.max_depth, 2) << "levels below would be evaluated in vain";
  EXPECT_EQ(propose(4, 4), (Tokens{1, 5, 6, 7}));
  EXPECT_EQ(propose(4, 1), (Tokens{1, 5})) << "nor than the step allows";
  EXPECT_THROW(propose(0, 4), ConfigError);
}

TEST(CascadeTest, WhenNobodyHasAnythingTheStepIsPlain) {
  NotingDrafter::Notes notes;
  const auto drafter = of_two(std::make_unique<NotingDrafter>(Tokens{}, &notes), 1,
                              std::make_unique<NotingDrafter>(Tokens{}, &notes));
  EXPECT_EQ(propose_within(*drafter, Tokens{1}, {4, 4, 1}).size(), 1);
  drafter->reset();
  EXPECT_EQ(notes.resets, 2);
}

TEST(CascadeTest, EachMemberSeesItsOwnLayers) {
  NotingDrafter::Notes a;
  NotingDrafter::Notes b;
  auto drafter =
      of_two(std::make_unique<NotingDrafter>(Tokens{}, &a, Needs{.capture_layers = {4, 2}}), 1,
             std::make_unique<NotingDrafter>(Tokens{1}, &b, Needs{.capture_layers = {9, 4}}));
  EXPECT_EQ(drafter->needs().capture_layers, (std::vector<int64_t>{4, 2, 9}));
  FakeModel target(6, random_table(6, 1));
  SpeculativeDecoding decoding(target, std::move(drafter), std::make_unique<ExactMatchVerifier>(),
                               std::make_unique<FixedDraftLength>(1));
  const Task task{{1, 2, 3}, {}, {.max_new_tokens = 3}};
  CounterRandomness random(1);
  const Generation generation = decoding.generate(task.request(random));
  ASSERT_EQ(generation.steps.size(), 2U) << "the last one is plain, so all were told to skip";
  EXPECT_EQ(a.skipped + b.skipped, 2);
  const Tokens seen = {1, 2, 3, generation.tokens[0]};
  const auto layer = [&](int64_t at) { return FakeModel::hidden_state(seen, at)[0]; };
  EXPECT_EQ(a.first_captured, (std::vector<double>{layer(4), layer(2)}));
  EXPECT_EQ(b.first_captured, (std::vector<double>{layer(9), layer(4)}));
  EXPECT_EQ(a.prompt_sizes, (std::vector<int64_t>{3, 3}));
}

TEST(CascadeTest, ChecksAllMembersAndDrawsWhenOneDoes) {
  NotingDrafter::Notes notes;
  const auto drafter = of_two(std::make_unique<NotingDrafter>(Tokens{}, &notes), 1,
                              std::make_unique<NotingDrafter>(Tokens{}, &notes, Needs{}, true));
  EXPECT_TRUE(drafter->draws());
  EXPECT_NO_THROW(drafter->check(FakeModel(6, random_table(6, 1))));
  EXPECT_THROW(drafter->check(FakeModel(101, random_table(101, 1))), ConfigError);
}

/// Draws one token from its distribution, though draws() does not say so: as a drafter does whose
/// `sample` is left to the shape.
class QuietlyDrawingDrafter final : public Drafter {
 public:
  Draft propose(const DraftContext& context) override {
    Draft draft = Draft::root(context.committed.back());
    draft.probs = {TokenProbs(std::vector<double>(6, 1.0 / 6.0))};
    draft.child_probs = {0};
    draft.add(4, 0);
    return draft;
  }
};

TEST(CascadeTest, ADraftThatWasDrawnIsNeverDropped) {
  NotingDrafter::Notes notes;
  const auto drafter = of_two(std::make_unique<QuietlyDrawingDrafter>(), 3,
                              std::make_unique<NotingDrafter>(Tokens{1, 2, 3}, &notes));
  EXPECT_EQ(propose_within(*drafter, Tokens{1, 2}, {5, 5, 1}).tokens, (Tokens{2, 4}));
  EXPECT_EQ(notes.proposed, 0);
  EXPECT_EQ(notes.skipped, 1);
}

TEST(CascadeTest, RefusesWhatCannotWork) {
  NotingDrafter::Notes notes;
  EXPECT_THROW(CascadeDrafter({}), ConfigError);
  const auto with = [&](bool draws, int64_t min_tokens) {
    return of_two(std::make_unique<NotingDrafter>(Tokens{}, &notes, Needs{}, draws), min_tokens,
                  std::make_unique<NotingDrafter>(Tokens{}, &notes));
  };
  EXPECT_THROW(with(false, 0), ConfigError);
  EXPECT_THROW(with(true, 2), ConfigError) << "a draft that was drawn cannot be dropped";
  EXPECT_NO_THROW(with(true, 1));
  EXPECT_NO_THROW(with(false, 2));
}

}  // namespace
}  // namespace specdec
