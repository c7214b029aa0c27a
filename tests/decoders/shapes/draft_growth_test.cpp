#include "decoders/shapes/draft_growth.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "core/randomness.h"
#include "decoders/shapes/draft_length.h"
#include "tests/support/draft_bench.h"
#include "tests/support/table_distribution.h"

namespace specdec {
namespace {

constexpr int64_t kGrowthVocab = 5;
const std::vector<Token> kGrowthCommitted = {1, 2};

/// A context with these limits, and a drafter to grow drafts with.
struct GrowthBench : DraftBench {
  GrowthBench() : DraftBench(3, {.temperature = 1.0}) {}

  DraftContext context(int64_t max_tokens, int64_t max_depth, int64_t max_evaluated) {
    return DraftBench::context(kGrowthCommitted, shape, {max_tokens, max_depth, 9}, max_evaluated);
  }
  /// Evaluated nodes, the root not counted.
  int64_t evaluated() const {
    int64_t sum = -1;
    for (const std::vector<int64_t>& frontier : distribution.frontiers()) {
      sum += std::ssize(frontier);
    }
    return sum;
  }

  FixedDraftLength shape{1};
  TableDistribution distribution{random_table(kGrowthVocab, 4, 3), kGrowthCommitted};
};

/// The loop of the class's documentation: it knows no limits.
Draft grow_binary(const DraftContext& context, ChildDistribution& distribution, Siblings siblings) {
  DraftGrowth growth(context, distribution, siblings);
  std::vector<int64_t> level = {0};
  while (!level.empty()) {
    growth.expand(level);
    std::vector<int64_t> next;
    for (const int64_t node : level) {
      const std::vector<int64_t> children = growth.add_children(node, 2);
      next.insert(next.end(), children.begin(), children.end());
    }
    level = next;
  }
  return std::move(growth).finish();
}

TEST(DraftGrowthTest, AShapeThatKnowsNoLimitsStaysWithinThem) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  for (const Siblings siblings : {Siblings::kDrawn, Siblings::kBest}) {
    for (const double temperature : {0.0, 1.0}) {
      const auto grown = [&](int64_t tokens, int64_t depth, int64_t evaluated) {
        GrowthBench bench;
        bench.sampling.temperature = temperature;
        const Draft draft =
            grow_binary(bench.context(tokens, depth, evaluated), bench.distribution, siblings);
        return std::vector<int64_t>{draft.proposed(), draft.depth(), bench.evaluated()};
      };
      EXPECT_EQ(grown(99, 3, kAny), (std::vector<int64_t>{14, 3, 6}));
      EXPECT_EQ(grown(5, 9, kAny), (std::vector<int64_t>{5, 2, 2}));
      EXPECT_EQ(grown(99, 9, 2), (std::vector<int64_t>{6, 2, 2}));
      EXPECT_EQ(grown(99, 9, 0), (std::vector<int64_t>{2, 1, 0}));
      EXPECT_EQ(grown(1, 1, kAny), (std::vector<int64_t>{1, 1, 0}));
    }
  }
}

TEST(DraftGrowthTest, WhatDoesNotFitIsNeverDrawn) {
  // One child fits: the second draw would have moved the randomness on.
  GrowthBench cut;
  const DraftContext context = cut.context(1, 9, 9);
  DraftGrowth growth(context, cut.distribution, Siblings::kDrawn);
  growth.expand(std::vector<int64_t>{0});
  EXPECT_EQ(growth.add_children(0, 4).size(), 1U);
  const Token next = static_cast<Token>(cut.random.draw(std::vector<double>(9, 1.0)));
  GrowthBench single;
  const DraftContext other = single.context(9, 9, 9);
  DraftGrowth one(other, single.distribution, Siblings::kDrawn);
  one.expand(std::vector<int64_t>{0});
  EXPECT_EQ(one.add_children(0, 1).size(), 1U);
  EXPECT_EQ(next, static_cast<Token>(single.random.draw(std::vector<double>(9, 1.0))));
}

TEST(DraftGrowthTest, ANodeThatWasNotExpandedHasNothing) {
  GrowthBench bench;
  const DraftContext context = bench.context(9, 9, 9);
  DraftGrowth growth(context, bench.distribution, Siblings::kDrawn);
  EXPECT_TRUE(growth.add_children(0, 2).empty());
  EXPECT_TRUE(growth.best(0, 2).empty());
  EXPECT_TRUE(growth.distribution(0).empty());
  EXPECT_FALSE(growth.logits(0).defined());
  growth.expand(std::vector<int64_t>{0});
  EXPECT_TRUE(growth.logits(0).defined());
  EXPECT_THROW(growth.expand(std::vector<int64_t>{0}), InternalError);
}

/// A drafter whose device draws the token 3 at every place.
class DrawnThrees final : public ChildDistribution {
 public:
  Tensor expand(const Draft&, std::span<const int64_t>) override { return {}; }
  bool expands_on_device() override { return answers; }
  std::optional<DrawnChain> draw_chain(const ChainRequest& chain) override {
    asked_for = chain.count;
    is_drawn = chain.random.has_value();
    DrawnChain drawn{.tokens = std::vector<Token>(static_cast<size_t>(chain.count), 3)};
    if (is_drawn) {
      drawn.probs = at::full({chain.count, kGrowthVocab}, 0.2, at::kDouble);
    }
    drawn.read_backs = {1, 40};
    return drawn;
  }
  bool leaves_out_tokens() const override { return leaves_out; }

  int64_t asked_for = 0;
  bool is_drawn = false;
  bool leaves_out = false;
  bool answers = true;
};

TEST(DraftGrowthTest, AChainThatADeviceDrawsStaysWithinTheLimits) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  for (const bool draws : {true, false}) {
    const auto drawn = [&](int64_t tokens, int64_t depth, int64_t evaluated) {
      GrowthBench bench;
      DrawnThrees device;
      ReadBacks read_backs;
      DraftContext context = bench.context(tokens, depth, evaluated);
      context.device_random = DeviceRandomness{};
      context.read_backs = &read_backs;
      DraftGrowth growth(context, device, draws ? Siblings::kDrawn : Siblings::kBest);
      EXPECT_TRUE(growth.add_drawn_chain());
      EXPECT_FALSE(growth.add_drawn_chain()) << "a second one";
      const Draft draft = std::move(growth).finish();
      EXPECT_EQ(device.is_drawn, draws);
      EXPECT_EQ(device.asked_for, draft.proposed());
      EXPECT_EQ(read_backs, (ReadBacks{1, 40}));
      EXPECT_EQ(draft.depth(), draft.proposed());
      EXPECT_EQ(draft.tokens.back(), 3);
      EXPECT_EQ(draft.child_probs.back(), -1);
      EXPECT_EQ(draft.child_probs.front(), draws ? 0 : -1);
      EXPECT_EQ(std::ssize(draft.probs), draws ? draft.proposed() : 0);
      return draft.proposed();
    };
    EXPECT_EQ(drawn(9, 4, kAny), 4);
    EXPECT_EQ(drawn(3, 9, kAny), 3);
    EXPECT_EQ(drawn(9, 9, 2), 3);
    EXPECT_EQ(drawn(9, 9, 0), 1);
  }
}

TEST(DraftGrowthTest, TheHostDrawsWhatADeviceCannot) {
  const auto is_drawn = [](const SamplingParams& sampling, std::optional<DeviceRandomness> random,
                           bool leaves_out = false, int64_t tokens = 9, bool answers = true) {
    GrowthBench bench;
    bench.sampling = sampling;
    DrawnThrees device;
    device.leaves_out = leaves_out;
    device.answers = answers;
    DraftContext context = bench.context(tokens, 9, 9);
    context.device_random = random;
    DraftGrowth growth(context, device, Siblings::kDrawn);
    const bool added = growth.add_drawn_chain();
    EXPECT_EQ(device.asked_for > 0, added);
    return added;
  };
  EXPECT_TRUE(is_drawn({.temperature = 1.0}, DeviceRandomness{}));
  EXPECT_TRUE(is_drawn({}, std::nullopt)) << "best tokens need no random numbers";
  EXPECT_FALSE(is_drawn({.temperature = 1.0}, std::nullopt));
  EXPECT_FALSE(is_drawn({.repetition_penalty = 1.5}, DeviceRandomness{}));
  EXPECT_FALSE(is_drawn({.logit_bias = {{1, 2.0}}}, DeviceRandomness{}));
  EXPECT_FALSE(is_drawn({}, DeviceRandomness{}, true)) << "all tokens may be left out";
  EXPECT_FALSE(is_drawn({}, DeviceRandomness{}, false, 0)) << "nothing fits";
  EXPECT_FALSE(is_drawn({}, DeviceRandomness{}, false, 9, false)) << "it answers in no draft";
}

/// A drafter whose device has no sampler, so that nothing is drawn where it is asked.
class WithoutSampler final : public ChildDistribution {
 public:
  Tensor expand(const Draft&, std::span<const int64_t>) override { return {}; }
  bool expands_on_device() override { return true; }
};

TEST(DraftGrowthTest, ADeviceIsAskedForTreesThatFit) {
  const std::vector<int64_t> parents = {-1, 0, 0, 1, 2, 3};
  const std::vector<int64_t> ranks = {0, 0, 1, 0, 0, 0};
  const auto is_asked = [&](int64_t tokens, int64_t depth, int64_t evaluated,
                            const SamplingParams& sampling = {}) {
    GrowthBench bench;
    bench.sampling = sampling;
    WithoutSampler device;
    const DraftContext context = bench.context(tokens, depth, evaluated);
    DraftGrowth growth(context, device, Siblings::kDrawn);
    try {
      EXPECT_FALSE(growth.add_drawn_tree(parents, ranks));
      return false;
    } catch (const InternalError&) {
      return true;
    }
  };
  EXPECT_TRUE(is_asked(5, 3, 3));
  EXPECT_FALSE(is_asked(4, 3, 3));
  EXPECT_FALSE(is_asked(5, 2, 3));
  EXPECT_FALSE(is_asked(5, 3, 2)) << "three nodes beside the root have children";
  EXPECT_FALSE(is_asked(5, 3, 3, {.temperature = 1.0})) << "the host alone knows the numbers";
  EXPECT_FALSE(is_asked(5, 3, 3, {.logit_bias = {{1, 2.0}}}));
}

/// A drafter whose device draws whole trees: node n has token n, but for those that are left out.
class DrawnNumbers final : public ChildDistribution {
 public:
  Tensor expand(const Draft&, std::span<const int64_t>) override { return {}; }
  bool expands_on_device() override { return true; }
  std::optional<DrawnTree> draw_tree(const TreeRequest& tree) override {
    asked_for = std::ssize(tree.parents);
    DrawnTree drawn{.tokens = std::vector<Token>(tree.parents.size())};
    std::iota(drawn.tokens.begin(), drawn.tokens.end(), 0);
    for (const int64_t node : left_out) {
      drawn.tokens[static_cast<size_t>(node)] = -1;
    }
    if (tree.random) {
      drawn.probs = at::full({3, kGrowthVocab}, 0.2, at::kDouble);
    }
    drawn.read_backs = {1, 24};
    return drawn;
  }
  void see_tokens(const Draft&) override { FAIL() << "nothing was expanded"; }

  std::vector<int64_t> left_out;
  int64_t asked_for = 0;
};

TEST(DraftGrowthTest, ATreeThatADeviceDrawsHasTheNodesThatAreThere) {
  const std::vector<int64_t> parents = {-1, 0, 0, 1, 1, 2};
  const std::vector<int64_t> ranks = {0, 0, 1, 0, 1, 0};
  for (const bool draws : {true, false}) {
    GrowthBench bench;
    DrawnNumbers device;
    device.left_out = {1, 3, 4};
    ReadBacks read_backs;
    DraftContext context = bench.context(9, 9, 9);
    context.device_random = DeviceRandomness{};
    context.read_backs = &read_backs;
    DraftGrowth growth(context, device, draws ? Siblings::kDrawn : Siblings::kBest);
    EXPECT_TRUE(growth.add_drawn_tree(parents, ranks));
    EXPECT_FALSE(growth.add_drawn_tree(parents, ranks)) << "a second one";
    const Draft draft = std::move(growth).finish();
    EXPECT_EQ(device.asked_for, 6);
    EXPECT_EQ(read_backs, (ReadBacks{1, 24}));
    EXPECT_EQ(draft.parents, (std::vector<int64_t>{-1, 0, 1}));
    EXPECT_EQ(std::vector<Token>(draft.tokens.begin() + 1, draft.tokens.end()),
              (std::vector<Token>{2, 5}));
    EXPECT_EQ(draft.child_probs,
              (draws ? std::vector<int64_t>{0, 2, -1} : std::vector<int64_t>{-1, -1, -1}));
    EXPECT_EQ(std::ssize(draft.probs), draws ? 3 : 0);
  }
}

/// A drafter whose device finds the logits of a chain damaged; they are read by no other call.
class DamagedChain final : public ChildDistribution {
 public:
  Tensor expand(const Draft&, std::span<const int64_t>) override { return {}; }
  bool expands_on_device() override { return true; }
  std::optional<DrawnChain> draw_chain(const ChainRequest&) override {
    ++chains;
    return std::nullopt;
  }
  std::optional<DrawnTree> draw_tree(const TreeRequest&) override {
    ADD_FAILURE() << "the chain was drawn before";
    return std::nullopt;
  }
  ForwardResult expand_on_device(const Draft&, std::span<const int64_t>, const Tensor&) override {
    throw Error("the first level");
  }

  int64_t chains = 0;
};

TEST(DraftGrowthTest, ADamagedChainIsDrawnLevelByLevelNext) {
  GrowthBench bench;
  DamagedChain device;
  const DraftContext context = bench.context(4, 9, 9);
  DraftGrowth growth(context, device, Siblings::kBest);
  EXPECT_THROW(growth.add_drawn_chain(), Error);
  EXPECT_EQ(device.chains, 1);
}

TEST(DraftGrowthTest, CandidatesAreKeptByName) {
  GrowthBench bench;
  const DraftContext context = bench.context(2, 9, 9);
  const auto found = [&] {
    DraftGrowth growth = DraftGrowth::of_candidates(context, bench.distribution);
    growth.expand(std::vector<int64_t>{0});
    const std::vector<int64_t> level = growth.add_children(0, 3);
    growth.expand(level);
    growth.add_children(level[1], 2);
    return growth;
  };
  EXPECT_EQ(found().draft().proposed(), 5) << "more than the context allows";
  const std::vector<int64_t> kept = {2, 4};
  EXPECT_EQ(found().finish(kept).parents, (std::vector<int64_t>{-1, 0, 1}));
  EXPECT_THROW(found().finish(), InternalError);
  EXPECT_THROW(found().finish(std::vector<int64_t>{1, 2, 3}), InternalError) << "too many";
  EXPECT_THROW(found().finish(std::vector<int64_t>{4}), InternalError) << "without its parent";
}

}  // namespace
}  // namespace specdec
