// Replay: strategies on small targets and drafters that are made of recorded distributions.
#include "experiments/certify/certify_replay.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "decoders/shapes/chain.h"
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

using testing::HasSubstr;

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
                                                 std::make_unique<ChainShape>(length));
  };
}

ReplayMake tree(MakeVerifier verifier) {
  return [verifier = std::move(verifier)](ReplayParts parts) {
    return std::make_unique<SpeculativeDecoding>(
        parts.target, std::move(parts.drafter), verifier(),
        std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}})));
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
    replay(make, rows_of(GetParam()), {.most_outcomes = 3000, .quiet = true}, test);
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
                                                 std::make_unique<ChainShape>(2));
  };
}

TEST_P(ReplayRowsTest, DraftersThatAreBrokenOnTheTablesAreFound) {
  EXPECT_GT(difference(on_tables<WrongDistributionDrafter>()), 1e-4);
  EXPECT_GT(difference(on_tables<StrippingDrafter>()), 1e-4);
  EXPECT_GT(difference(on_tables<RerankingDrafter>()), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, ReplayRowsTest, testing::Values("gemma3", "smollm2"));

TEST(ReplayShapeTest, AReducedShapeIsSaid) {
  const MakeVerifier rejection = [] { return std::make_unique<RejectionVerifier>(); };
  ReplayTest small{.strategy = "tried"};
  replay(chain(rejection, 2), rows_of("smollm2"), {.tables = 1}, small);
  EXPECT_FALSE(small.reduced);
  ReplayTest large{.strategy = "tried"};
  replay(chain(rejection, 12), rows_of("smollm2"), {.most_outcomes = 500, .tables = 1}, large);
  EXPECT_TRUE(large.reduced);
  EXPECT_EQ(large.own.depth, 12);
  EXPECT_LT(large.ran.depth, 12);
}

TEST(ReplayShapeTest, ChosenTokensDoNotStandInForDrawnOnes) {
  const MakeVerifier rejection = [] { return std::make_unique<RejectionVerifier>(); };
  const ReplayOptions options{.most_outcomes = 10000, .tables = 1};
  std::vector<ReplayRow> chosen = rows_of("smollm2");
  std::erase_if(chosen, [](const ReplayRow& row) { return row.drawn; });
  ReplayTest few{.strategy = "tried"};
  replay(chain(rejection, 12), chosen, options, few);
  EXPECT_FALSE(few.reduced);  // chosen drafts have few enough outcomes, drawn ones have not
  ReplayTest both{.strategy = "tried"};
  replay(chain(rejection, 12), rows_of("smollm2"), options, both);
  EXPECT_TRUE(both.reduced);
  EXPECT_LT(both.ran.depth, 12);
}

TEST(ReplayRowsFileTest, SaysWhatIsWrong) {
  TemporaryFolder folder;
  const auto file = folder.write("rows.json",
                                 "{\"rows\": [{\"point\": \"\", \"strategy\": \"a\", "
                                 "\"drawn\": true, \"p\": [0.5, 0.4], \"q\": [1, 0]}]}");
  EXPECT_THAT(error_message<ConfigError>([&] { (void)read_rows_json(file); }),
              HasSubstr("row 1: probabilities sum to 0.9, not to 1"));
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
