#include "decoders/shapes/cost_aware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "tests/support/fake_model.h"

namespace specdec {
namespace {

/// v(n) = 1 + slope * (n - 1).
CostCurve line(double slope) {
  return {{{.new_tokens = 1, .context = 1, .seconds = 1.0},
           {.new_tokens = 101, .context = 1, .seconds = 1.0 + 100.0 * slope}}};
}

CostAwareOptions options(double slope) {
  CostAwareOptions options;
  options.target_cost = line(slope);
  return options;
}

/// A draft of the planned shape, of which the first `accepted` tokens of its first path are kept.
void observe_step(CostAwareShape& shape, const RankTree& plan, int64_t accepted) {
  Draft draft = Draft::root(0);
  for (size_t node = 1; node < plan.parents.size(); ++node) {
    draft.add(static_cast<Token>(node), plan.parents[node]);
  }
  VerifyResult result{.path = {0}, .next = 0};
  while (static_cast<int64_t>(result.path.size()) <= accepted) {
    const std::vector<int64_t> children = draft.children(result.path.back());
    if (children.empty()) {
      break;
    }
    result.path.push_back(children.front());
  }
  shape.observe(draft, result);
}

struct RunOutcome {
  int64_t drafting = 0;  ///< steps
  double lost = 0.0;     ///< beside plain decoding, by the curves of `line`
};

/// Steps of a request; `accepted` of each draft's first path are kept.
RunOutcome run(CostAwareShape& shape, int64_t steps, int64_t accepted, double slope) {
  RunOutcome done;
  int64_t context = 1;
  for (int64_t i = 0; i < steps; ++i) {
    const bool drafts = shape.next(context).tokens > 0;
    const RankTree plan = drafts ? shape.plan() : RankTree{.parents = {-1}, .ranks = {0}};
    const int64_t kept = std::min(accepted, plan.depth());
    done.drafting += drafts ? 1 : 0;
    done.lost += slope * static_cast<double>(plan.nodes()) - static_cast<double>(kept);
    observe_step(shape, plan, accepted);
    context += 1 + kept;
  }
  return done;
}

TEST(CostAwareTest, BeginsWithWhatTheFirstGuessPromises) {
  CostAwareShape cheap(options(0.01));
  EXPECT_GT(cheap.next(1).tokens, 1);
  CostAwareShape dear(options(0.9));
  EXPECT_EQ(dear.next(1).tokens, 1) << "a trial";
  auto not_affordable = options(0.9);
  not_affordable.drafter_cost = CostCurve{{{.new_tokens = 1, .context = 1, .seconds = 9.0}}};
  EXPECT_EQ(CostAwareShape(not_affordable).next(1).tokens, 0);
}

TEST(CostAwareTest, GrowsWhereTokensAreAccepted) {
  CostAwareShape shape(options(0.05));
  run(shape, 60, 99, 0.05);
  EXPECT_EQ(shape.plan().depth(), 8);
  EXPECT_GT(shape.acceptance().front(), 0.95);
}

TEST(CostAwareTest, AUselessDrafterLosesNoMoreThanWhatIsAllowed) {
  for (const double slope : {0.3, 0.6, 1.0}) {
    for (const double draft : {0.0, 0.2}) {
      auto costs = options(slope);
      costs.drafter_cost = CostCurve{{{.new_tokens = 1, .context = 1, .seconds = draft}}};
      CostAwareShape shape(costs);
      const auto run_once = [&] {
        const RunOutcome done = run(shape, 1000, 0, slope);
        return done.lost + draft * static_cast<double>(done.drafting);
      };
      const double first = run_once();
      EXPECT_LT(first, 0.01 * 1000 + 2.0 + 3.0) << "and what the first guess promised";
      shape.reset();
      EXPECT_LT(first + run_once(), 0.01 * 2000 + 2.0 + 3.0);
    }
  }
}

TEST(CostAwareTest, TriesAgainAndFindsWhatPays) {
  CostAwareShape shape(options(0.3));
  run(shape, 200, 0, 0.3);
  run(shape, 600, 99, 0.3);
  EXPECT_GE(shape.plan().depth(), 2);
}

TEST(CostAwareTest, CatchingUpIsPaidFor) {
  auto costs = options(0.1);
  costs.acceptance = {0.05};
  costs.drafter_cost = CostCurve{{{.new_tokens = 1, .context = 1, .seconds = 0.5},
                                  {.new_tokens = 10, .context = 1, .seconds = 0.5}}};
  CostAwareShape shape(costs);
  EXPECT_EQ(shape.next(1000).tokens, 0) << "1000 tokens to see cost 50 plain steps";
  shape.reset();
  EXPECT_EQ(shape.next(10).tokens, 1);
}

TEST(CostAwareTest, DecidesByTheCurveOfADraftModelOfFewPositions) {
  FakeModel draft(7, random_table(7, 1), 16);
  auto costs = options(0.01);
  costs.drafter_cost = measure_cost_curve(draft, {.repeats = 1});
  CostAwareShape shape(costs);
  EXPECT_GT(shape.next(1).tokens, 0) << "a drafter of microseconds beside a target of seconds";
}

TEST(CostAwareTest, CostsDecide) {
  CostAwareShape cheap(options(0.01));
  CostAwareShape dear(options(1.0));
  run(cheap, 40, 1, 0.01);
  run(dear, 40, 1, 1.0);
  EXPECT_GT(cheap.plan().nodes(), dear.plan().nodes());
}

TEST(CostAwareTest, TheChosenTreePromisesTheMost) {
  auto chosen = options(0.1);
  chosen.acceptance = {0.5, 0.3, 0.1};
  chosen.prior_weight = 1e9;  // the guess stands
  chosen.memory = 1.0;
  chosen.drafter_cost = CostCurve{{{.new_tokens = 1, .context = 1, .seconds = 0.1}}};
  CostAwareShape shape(chosen);
  shape.next(1);
  const auto rate = [&](const RankTree& tree) {
    std::vector<double> reached(tree.parents.size(), 1.0);
    double accepted = 0.0;
    for (size_t node = 1; node < reached.size(); ++node) {
      reached[node] = reached[static_cast<size_t>(tree.parents[node])] *
                      chosen.acceptance[static_cast<size_t>(tree.ranks[node])];
      accepted += reached[node];
    }
    const double verify = 1.0 + 0.1 * static_cast<double>(tree.nodes());
    return (1.0 + accepted) / (verify + 0.1 * static_cast<double>(tree.depth()));
  };
  const double best = rate(shape.plan());
  EXPECT_GT(best, 1.03);
  for (const auto& paths :
       std::vector<std::vector<std::vector<int64_t>>>{{{0}},
                                                      {{0}, {1}},
                                                      {{0}, {0, 0}},
                                                      {{0}, {1}, {0, 0}},
                                                      {{0}, {1}, {0, 0}, {0, 1}},
                                                      {{0}, {1}, {2}},
                                                      {{0}, {1}, {0, 0}, {1, 0}},
                                                      {{0}, {0, 0}, {0, 0, 0}}}) {
    EXPECT_GE(best, rate(tree_of_paths(paths)) - 1e-6);
  }
}

TEST(CostAwareTest, WhatWasLearnedIsTheFirstGuessOfTheNextRequest) {
  CostAwareShape keeps(options(0.05));
  run(keeps, 60, 99, 0.05);
  const auto learned = keeps.acceptance();
  keeps.reset();
  EXPECT_NEAR(keeps.acceptance().front(), learned.front(), 1e-12);
  run(keeps, 4, 0, 0.05);
  EXPECT_LT(keeps.acceptance().front(), 0.5) << "but no more than a guess";

  auto options_without = options(0.05);
  options_without.persist = false;
  CostAwareShape forgets(options_without);
  run(forgets, 60, 99, 0.05);
  forgets.reset();
  EXPECT_NEAR(forgets.acceptance().front(), 0.6, 1e-12);
}

TEST(CostAwareTest, NodesBeyondTheMeasuredOnesCostAsMuchAsTheLast) {
  auto measured_far = options(0.05);
  measured_far.max_nodes = 128;
  measured_far.max_depth = 64;
  auto measured_near = measured_far;
  measured_near.target_cost = {{{.new_tokens = 1, .context = 1, .seconds = 1.0},
                                {.new_tokens = 8, .context = 1, .seconds = 1.35}}};
  CostAwareShape far(measured_far);
  CostAwareShape near(measured_near);
  run(far, 60, 6, 0.05);
  run(near, 60, 6, 0.05);
  EXPECT_GT(far.plan().nodes(), 8);
  EXPECT_LT(far.plan().nodes(), 100);
  EXPECT_EQ(near.plan().parents, far.plan().parents);
}

TEST(CostAwareTest, ChainsOnly) {
  auto chains = options(0.05);
  chains.branches = 1;
  CostAwareShape shape(chains);
  EXPECT_FALSE(shape.branches());
  run(shape, 60, 99, 0.05);
  EXPECT_EQ(shape.plan().branches(), 1);
}

TEST(CostAwareTest, OptionsOutOfRangeAreRefused) {
  CostAwareOptions bad = options(0.1);
  bad.acceptance = {0.9, 0.9};
  EXPECT_THROW(CostAwareShape{bad}, ConfigError);
  bad = options(0.1);
  bad.max_nodes = 0;
  EXPECT_THROW(CostAwareShape{bad}, ConfigError);
  bad = options(0.1);
  bad.explore = 2.0;
  EXPECT_THROW(CostAwareShape{bad}, ConfigError);
  EXPECT_THROW(CostAwareShape{CostAwareOptions{}}, ConfigError);  // no costs
  bad = options(0.1);
  bad.drafter_cost = CostCurve{};
  EXPECT_THAT([&] { CostAwareShape{bad}; },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("cost curve is empty")));
}

/// To leave out a drawn token because of the experts that it wakes, or for any other reason that
/// depends on it, would bias what is drafted.
TEST(CostAwareTest, WhatIsDraftedWasDecidedBeforeAnythingIsDrawn) {
  const auto drafted = [](uint64_t seed) {
    CostAwareShape shape(options(0.05));
    std::vector<DraftLimits> limits;
    Draft draft;
    for (int64_t context = 1; context < 40; ++context) {
      const DraftLimits limit = shape.next(context);
      limits.push_back(limit);
      draft = Draft::root(0);
      for (size_t node = 1; node < shape.plan().parents.size(); ++node) {
        draft.add(static_cast<Token>(seed * node), shape.plan().parents[node]);
      }
      EXPECT_EQ(draft.proposed(), limit.tokens);
      shape.observe(draft, {.path = {0, 1}, .next = 0});
    }
    std::vector<int64_t> sizes;
    for (const DraftLimits& limit : limits) {
      sizes.insert(sizes.end(), {limit.tokens, limit.depth, limit.branches});
    }
    return sizes;
  };
  EXPECT_EQ(drafted(1), drafted(7)) << "the tokens themselves change nothing";
}

}  // namespace
}  // namespace specdec
