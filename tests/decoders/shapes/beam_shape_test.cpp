#include "decoders/shapes/beam_shape.h"

#include <gtest/gtest.h>

#include "core/randomness.h"
#include "tests/support/draft_bench.h"
#include "tests/support/table_distribution.h"

namespace specdec {
namespace {

constexpr int64_t kBeamShapeVocab = 6;
const std::vector<Token> kBeamCommitted = {1, 2};

/// What a drafter that leaves the tree to the shape is given for one beam.
Draft grow_beam(BeamShape& shape) {
  DraftBench bench(3);
  TableDistribution distribution(random_table(kBeamShapeVocab, 4, 3), kBeamCommitted);
  return shape.grow(bench.context(kBeamCommitted, shape, {99, 99, 99}), distribution,
                    Siblings::kBest);
}

Draft wide_draft(int64_t size) {
  Draft draft = Draft::root(kBeamCommitted.back());
  while (draft.size() < size) {
    draft.add(static_cast<Token>(draft.size()), 0);
  }
  return draft;
}

TEST(BeamShapeTest, PrunesWhatIsNotAmongTheBestOfAllBeams) {
  BeamShape shape(2, 2);
  shape.begin_step({});
  shape.begin_beam(-50.0);
  const BeamShape::Scored unlikely = shape.scored(grow_beam(shape));
  shape.begin_beam(0.0);
  const BeamShape::Scored likely = shape.scored(grow_beam(shape));
  EXPECT_EQ(unlikely.scores.size(), unlikely.draft.tokens.size());
  EXPECT_EQ(shape.prune(likely).size(), likely.draft.size());
  EXPECT_EQ(shape.prune(unlikely).proposed(), 0);
}

TEST(BeamShapeTest, ADraftThatWasNotGrownHereIsLeftAsItIsWhateverItsSize) {
  BeamShape shape(2, 2);
  shape.begin_step({});
  shape.begin_beam(-50.0);
  const Draft grown = grow_beam(shape);  // asked, and then another one is returned
  ASSERT_EQ(grown.proposed(), 4);
  const BeamShape::Scored other = shape.scored(wide_draft(grown.size()));
  shape.begin_beam(0.0);
  const BeamShape::Scored likely = shape.scored(grow_beam(shape));
  EXPECT_TRUE(other.scores.empty());
  EXPECT_EQ(shape.prune(other).tokens, wide_draft(grown.size()).tokens);
  EXPECT_EQ(shape.prune(likely).size(), likely.draft.size());
}

TEST(BeamShapeTest, ADraftThatIsNotReturnedTakesNoPlaceOnItsLevels) {
  BeamShape shape(1, 2);
  shape.begin_step({});
  shape.begin_beam(0.0);
  grow_beam(shape);
  (void)shape.scored(Draft::root(kBeamCommitted.back()));
  shape.begin_beam(-50.0);
  const BeamShape::Scored other = shape.scored(grow_beam(shape));
  EXPECT_EQ(other.draft.proposed(), 2);
  EXPECT_EQ(shape.prune(other).proposed(), 2);
}

}  // namespace
}  // namespace specdec
