// Replay: strategies on small targets and drafters that are made of recorded distributions.
#include "experiments/certify/certify_replay.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/rejection.h"
#include "experiments/certify/certify.h"
#include "tests/support/broken_components.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::Ge;
using testing::HasSubstr;
using testing::Lt;
using testing::Not;
using testing::SizeIs;

/// Accepts with probability min(1, 1.05 p / q).
class OveracceptingVerifier final : public Verifier {
 public:
  VerifyResult verify(const Draft& draft, TargetProbs& target, int64_t /*position*/,
                      Randomness& random) const override {
    VerifyResult result{.path = {0}};
    for (int64_t node = 1; node < draft.size(); ++node) {
      const Token token = draft.tokens[static_cast<size_t>(node)];
      const auto* q = draft.drawn_from(node - 1);
      const double q_token = q == nullptr ? 1.0 : (*q)[token];
      if (!random.bernoulli(1.05 * target.probability(node - 1, token) / q_token)) {
        const auto drawn = q == nullptr ? TokenProbs::one_hot(token, target.vocab_size()) : *q;
        result.next = residual(target.after(node - 1), drawn).draw(random);
        return result;
      }
      result.path.push_back(node);
    }
    result.next = target.draw(draft.size() - 1, random);
    return result;
  }
};

using MakeVerifier = std::function<std::unique_ptr<Verifier>()>;

ReplayMake chain(MakeVerifier verifier, int64_t length = 3) {
  return [verifier = std::move(verifier), length](ReplayParts parts) {
    return std::make_unique<SpeculativeDecoding>(parts.target, std::move(parts.drafter), verifier(),
                                                 std::make_unique<FixedDraftLength>(length));
  };
}

using Paths = std::vector<std::vector<int64_t>>;

ReplayMake tree(MakeVerifier verifier, Paths paths = {{0}, {1}, {0, 0}}) {
  return [verifier = std::move(verifier), paths = std::move(paths)](ReplayParts parts) {
    return std::make_unique<SpeculativeDecoding>(
        parts.target, std::move(parts.drafter), verifier(),
        std::make_unique<StaticTreeShape>(tree_of_paths(paths)));
  };
}

MakeVerifier buggy(Bug bug) {
  return [bug] { return std::make_unique<BuggyVerifier>(bug); };
}

const std::vector<ReplayRow>& rows_of(const std::string& model) {
  static std::map<std::string, std::vector<ReplayRow>> all;
  if (!all.contains(model)) {
    all[model] = read_rows_json(SPECDEC_SOURCE_DIR "/tests/data/certify_rows/" + model + ".json");
  }
  return all.at(model);
}

class ReplayRowsTest : public testing::TestWithParam<std::string> {
 protected:
  static double difference(const ReplayMake& make) {
    ReplayTest test{.strategy = "tried"};
    replay(make, rows_of(GetParam()), {.most_outcomes = 1000, .quiet = true}, test);
    EXPECT_EQ(test.error, "");
    EXPECT_GT(test.tables, 0);
    return test.difference;
  }
};

TEST_P(ReplayRowsTest, LosslessVerifiersPass) {
  const MakeVerifier rejection = [] { return std::make_unique<RejectionVerifier>(); };
  EXPECT_LT(difference(chain(rejection)), kExactDistribution);
  EXPECT_LT(difference(tree(rejection)), kExactDistribution);
  EXPECT_LT(difference(tree(buggy(Bug::kNone))), kExactDistribution);
  EXPECT_LT(difference(chain([] { return std::make_unique<BlockVerifier>(); })),
            kExactDistribution);
}

TEST_P(ReplayRowsTest, AVerifierThatAcceptsFivePercentMoreIsFound) {
  const auto make = chain([] { return std::make_unique<OveracceptingVerifier>(); });
  EXPECT_GT(difference(make), 1e-4);
}

TEST_P(ReplayRowsTest, EveryPlantedVerifierIsFound) {
  for (const Bug bug : {Bug::kUniformQ, Bug::kResidualFromTarget, Bug::kResidualNotNormalised,
                        Bug::kSiblingsIndependent, Bug::kAlwaysAccepts, Bug::kTypicalAcceptance,
                        Bug::kFirstUnchecked}) {
    EXPECT_GT(difference(tree(buggy(bug))), 1e-4) << static_cast<int>(bug);
  }
}

TEST_P(ReplayRowsTest, ASharedRandomNumberIsFound) {
  ReplayTest test{.strategy = "tried"};
  replay(chain(buggy(Bug::kSharedRandomNumber)), rows_of(GetParam()), {.quiet = true}, test);
  EXPECT_THAT(test.error, HasSubstr("is drawn twice"));
  EXPECT_TRUE(test.failed());
}

template <class Broken>
ReplayMake on_tables() {
  return [](ReplayParts parts) {
    const auto table = [&tables = parts.tables](TokenSpan history) {
      return tables.draft_logits(history);
    };
    return std::make_unique<SpeculativeDecoding>(parts.target, std::make_unique<Broken>(table),
                                                 std::make_unique<RejectionVerifier>(),
                                                 std::make_unique<FixedDraftLength>(2));
  };
}

TEST_P(ReplayRowsTest, DraftersThatAreBrokenOnTheTablesAreFound) {
  EXPECT_GT(difference(on_tables<WrongDistributionDrafter>()), 1e-4);
  EXPECT_GT(difference(on_tables<StrippingDrafter>()), 1e-4);
  EXPECT_GT(difference(on_tables<RerankingDrafter>()), 1e-4);
}

/// Temperatures 0.8 and 1, with and without top-p; each with drawn rows and with chosen ones.
std::vector<std::vector<ReplayRow>> rows_by_point(const std::string& model) {
  std::map<std::string, std::vector<ReplayRow>> points;
  for (const auto& row : rows_of(model)) {
    points[row.point + (row.drawn ? " drawn" : " chosen")].push_back(row);
  }
  std::vector<std::vector<ReplayRow>> all;
  for (auto& [point, rows] : points) {
    all.push_back(std::move(rows));
  }
  return all;
}

TEST_P(ReplayRowsTest, MistakesAreFoundAtEachPointByAnyTables) {
  const auto points = rows_by_point(GetParam());
  EXPECT_THAT(points, SizeIs(8));
  for (const auto& rows : points) {
    std::vector<ReplayMake> makes = {
        chain([] { return std::make_unique<OveracceptingVerifier>(); }),
        // siblings of a drawn draft lose their order; a chosen token has no distribution
        tree(buggy(rows.front().drawn ? Bug::kResidualNotNormalised : Bug::kUniformQ)),
        on_tables<StrippingDrafter>()};
    for (const auto& make : makes) {
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        ReplayTest test{.strategy = "tried"};
        replay(make, rows, {.most_outcomes = 800, .first_seed = 100 * seed, .quiet = true}, test);
        EXPECT_GT(test.difference, 1e-9) << rows.front().point << ", seed " << seed;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ReplayRowsTest, testing::Values("gemma3", "smollm2"));

MakeVerifier rejection() {
  return [] { return std::make_unique<RejectionVerifier>(); };
}

std::vector<ReplayRow> drawn_rows_of(const std::string& model) {
  auto rows = rows_of(model);
  std::erase_if(rows, [](const ReplayRow& row) { return !row.drawn; });
  return rows;
}

TEST(ReplayShapeTest, AReducedShapeIsSaid) {
  ReplayTest small{.strategy = "tried"};
  replay(chain(rejection(), 2), rows_of("smollm2"), {.tables = 1}, small);
  EXPECT_FALSE(small.reduced);
  ReplayTest large{.strategy = "tried"};
  replay(chain(rejection(), 12), rows_of("smollm2"), {.most_outcomes = 500, .tables = 1}, large);
  EXPECT_TRUE(large.reduced);
  EXPECT_EQ(large.own.depth, 12);
  EXPECT_THAT(large.ran, ElementsAre(Field(&DraftSize::depth, AllOf(Ge(2), Lt(12)))));
}

TEST(ReplayShapeTest, AnOwnDraftWiderThanAnAlphabetOfFourRuns) {
  ReplayTest test{.strategy = "tried"};
  replay(tree(rejection(), {{0}, {1}, {2}, {3}, {4}}), drawn_rows_of("smollm2"), {.tables = 1},
         test);
  EXPECT_FALSE(test.reduced);
  EXPECT_THAT(test.ran, ElementsAre(DraftSize{.nodes = 5, .depth = 1, .branches = 5}));
  EXPECT_LT(test.difference, kExactDistribution);
}

TEST(ReplayShapeTest, WhatIsTooLargeIsReducedInDepthAndInWidth) {
  ReplayTest test{.strategy = "tried"};
  replay(tree(rejection(), {{0}, {1}, {2}, {3}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0}}),
         drawn_rows_of("smollm2"), {.most_outcomes = 400, .tables = 1}, test);
  EXPECT_TRUE(test.reduced);
  EXPECT_EQ(test.own, (DraftSize{.nodes = 7, .depth = 4, .branches = 4}));
  EXPECT_THAT(
      test.ran,
      AllOf(Contains(Field(&DraftSize::branches, 4)),
            Contains(AllOf(Field(&DraftSize::depth, 4), Field(&DraftSize::branches, Lt(4))))));
  EXPECT_LT(test.difference, kExactDistribution);
}

TEST(ReplayShapeTest, ChosenTokensDoNotStandInForDrawnOnes) {
  const std::vector<double> p(6, 1.0 / 6.0);
  const std::vector<double> q = {0.3, 0.25, 0.2, 0.15, 0.05, 0.05};
  const auto make = tree(rejection(), {{0}, {1}, {2}, {3}});
  const ReplayOptions options{.most_outcomes = 100, .tables = 1};
  ReplayTest chosen{.strategy = "tried"};
  replay(make, {{"", "", false, p, q}}, options, chosen);
  EXPECT_FALSE(chosen.reduced);  // chosen drafts have few enough outcomes, drawn ones have not
  ReplayTest both{.strategy = "tried"};
  replay(make, {{"", "", false, p, q}, {"", "", true, p, q}}, options, both);
  EXPECT_TRUE(both.reduced);
  EXPECT_EQ(both.own.branches, 4);
  EXPECT_THAT(both.ran, Each(Field(&DraftSize::branches, Lt(4))));
}

/// `count` rows of two entries, each with its own distribution.
std::vector<ReplayRow> different_rows(int64_t count) {
  std::vector<ReplayRow> rows;
  for (int64_t i = 0; i < count; ++i) {
    const double p = (static_cast<double>(i) + 1.0) / (2.0 * static_cast<double>(count) + 2.0);
    rows.push_back({"", "", true, {p, 1.0 - p}, {0.5, 0.5}});
  }
  return rows;
}

TEST(ReplayTablesTest, EveryPrefixHasADistributionOfItsOwnWhileTheyLast) {
  const ReplayTables tables(different_rows(8), {.entries = 2});
  std::set<std::vector<double>> found;
  std::vector<std::vector<Token>> prefixes = {{0, 0}};
  for (size_t i = 0; i < 7; ++i) {  // lengths 0 to 3: 1 + 2 + 4 + 8 prefixes
    for (const Token token : {0, 1}) {
      auto longer = prefixes[i];
      longer.push_back(token);
      prefixes.push_back(std::move(longer));
    }
  }
  for (const auto& prefix : prefixes) {
    found.insert(tables.target_logits(prefix));
  }
  EXPECT_EQ(tables.places(), 16);
  EXPECT_THAT(found, SizeIs(prefixes.size()));
}

TEST(ReplayTablesTest, ASeedShufflesTheRows) {
  const ReplayTables one(different_rows(8), {.seed = 1, .entries = 2});
  const ReplayTables two(different_rows(8), {.seed = 2, .entries = 2});
  const std::vector<Token> prefix = {0, 0};
  EXPECT_NE(one.target_logits(prefix), two.target_logits(prefix));
}

TEST(ReplayTablesTest, ANarrowDrafterProposesFewerTokens) {
  const ReplayTables tables({{"", "", true, {0.4, 0.3, 0.2, 0.1}, {0.1, 0.2, 0.3, 0.4}}},
                            {.entries = 4, .drafted = 2});
  const std::vector<Token> prefix = {0, 0};
  EXPECT_THAT(tables.draft_logits(prefix),
              ElementsAre(std::log(0.1), std::log(0.2 + 0.3 + 0.4), std::log(0.0), std::log(0.0)));
  EXPECT_THAT(tables.target_logits(prefix), Not(Contains(std::log(0.0))));
}

TEST(ReplayRowsFileTest, SaysWhatIsWrong) {
  TemporaryFolder folder;
  const auto file = folder.write("rows.json",
                                 "{\"rows\": [{\"point\": \"\", \"strategy\": \"a\", "
                                 "\"drawn\": true, \"p\": [0.5, 0.4], \"q\": [1, 0]}]}");
  EXPECT_THAT(error_message<ConfigError>([&] { (void)read_rows_json(file); }),
              HasSubstr("'rows[0].p' holds probabilities that sum to 0.9, not to 1"));
}

TEST(LumpRowTest, KeepsLikelyTokensAndTheRest) {
  Draft draft = Draft::root(0);
  draft.probs = {TokenProbs(std::vector<double>{0.1, 0.2, 0.7, 0.0})};
  draft.child_probs[0] = 0;
  draft.add(2, 0);
  std::vector<TokenProbs> after(2, TokenProbs(std::vector<double>{0.5, 0.3, 0.1, 0.1}));
  TargetProbs target(2, 4, [&](int64_t node) { return after[static_cast<size_t>(node)]; });
  const auto row = lump_row(draft, target, 0);
  EXPECT_TRUE(row.drawn);
  EXPECT_EQ(row.p, (std::vector<double>{0.1, 0.5, 0.3, 0.1, 0.0}));
  const auto two = lump_row(row, 2);
  EXPECT_DOUBLE_EQ(two.p[1], 0.9);
  EXPECT_DOUBLE_EQ(two.q[0], 0.7);
}

}  // namespace
}  // namespace specdec
