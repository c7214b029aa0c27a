#include "decoders/draft_grammar.h"

#include <gmock/gmock.h>

#include <limits>

#include "tests/support/letter_grammar.h"

namespace specdec {
namespace {

using testing::ElementsAre;

const std::vector<std::string> kEndedPieces = {"a", "b", "ab", "ba", ""};
constexpr Token kEndPiece = 4;

GrammarMatcher matcher(std::string_view pattern, const std::vector<Token>& accepted = {}) {
  GrammarMatcher place(letter_grammar(kEndedPieces, pattern));
  for (const Token token : accepted) {
    EXPECT_TRUE(place.accept(token)) << token;
  }
  return place;
}

TEST(DraftGrammarTest, EachNodeHasItsOwnMask) {
  const GrammarMatcher root = matcher("a(b|a)b*");
  Draft draft = Draft::root(0);
  const int64_t a = draft.add(0, 0);
  const int64_t forbidden = draft.add(1, 0);
  const int64_t below = draft.add(0, forbidden);
  const int64_t aa = draft.add(0, a);
  const int64_t end = draft.add(kEndPiece, aa);
  const int64_t after_end = draft.add(1, end);
  DraftGrammar grammar(root);
  EXPECT_THAT(grammar.mask(draft, 0).tokens(), ElementsAre(0, 2));  // a, ab
  EXPECT_THAT(grammar.mask(draft, a).tokens(), ElementsAre(0, 1, 2));
  EXPECT_THAT(grammar.mask(draft, aa).tokens(), ElementsAre(1, kEndPiece));
  for (const int64_t unreachable : {forbidden, below, end, after_end}) {
    EXPECT_TRUE(grammar.mask(draft, unreachable).empty()) << unreachable;
  }
  EXPECT_TRUE(grammar.allows(draft, end));
  EXPECT_FALSE(grammar.allows(draft, forbidden));
  EXPECT_FALSE(grammar.allows(draft, below));
  EXPECT_FALSE(grammar.allows(draft, after_end));
}

TEST(DraftGrammarTest, SaysWhatIsAllowedAndNothingBeyondItsVocabulary) {
  const TokenMask mask = matcher("a(b|a)b*").mask();
  EXPECT_THAT(*allowed_by(mask), ElementsAre(0b101U));
  const auto all = std::make_shared<const MaskWords>(MaskWords{~0U, ~0U});
  const TokenMask wide(
      std::make_shared<const TokenMask::Content>(TokenMask::Content{all, {}, {}, false}), 35);
  EXPECT_THAT(*allowed_by(wide), ElementsAre(~0U, 0b111U));
  EXPECT_EQ(allowed_by(TokenMask()), nullptr)
      << "any distribution will do where nothing can be reached";
}

TEST(DraftGrammarTest, TellsHowMuchIsLeftOpen) {
  EXPECT_EQ(freedom_of(matcher("aa*b").mask()), Freedom::kConstrained);  // a, ab
  EXPECT_EQ(freedom_of(matcher("aaa").mask()), Freedom::kForced);
  EXPECT_EQ(freedom_of(matcher("(a|b)*").mask()), Freedom::kFree);
}

TEST(DraftGrammarTest, LeavesOutWhatWasFoundDeterministicallyAndIsForbidden) {
  const GrammarMatcher root = matcher("a(b|a)b*");
  Draft draft = Draft::root(0);
  draft.add(1, 0);  // forbidden, and what follows it
  draft.add(0, 1);
  const int64_t a = draft.add(0, 0);
  const int64_t ab = draft.add(1, a);
  draft.add(0, ab);  // forbidden
  draft.add(1, ab);
  const Draft left = without_forbidden(draft, root);
  EXPECT_THAT(left.tokens, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(left.parents, ElementsAre(-1, 0, 1, 2));
  EXPECT_THAT(left.child_probs, ElementsAre(-1, -1, -1, -1));
}

TEST(DraftGrammarTest, KeepsWhatWasDrawn) {
  const GrammarMatcher root = matcher("a(b|a)b*");
  Draft draft = Draft::root(0);
  draft.add(1, 0);
  draft.add(0, 0);
  draft.child_probs[0] = 0;
  const Draft left = without_forbidden(draft, root);
  EXPECT_EQ(left.tokens, draft.tokens);
  EXPECT_EQ(left.child_probs, draft.child_probs);
}

TEST(DraftGrammarTest, AForcedChainEndsBeforeATokenThatABiasForbids) {
  const std::vector<Token> forced = {3, 1, 2};
  SamplingParams sampling;
  Draft chain = forced_chain(9, forced, sampling);
  EXPECT_THAT(chain.tokens, ElementsAre(9, 3, 1, 2));
  EXPECT_THAT(chain.parents, ElementsAre(-1, 0, 1, 2));
  sampling.logit_bias = {{1, -std::numeric_limits<double>::infinity()}, {3, -5.0}};
  chain = forced_chain(9, forced, sampling);
  EXPECT_THAT(chain.tokens, ElementsAre(9, 3));
  EXPECT_THAT(forced_chain(9, {}, sampling).tokens, ElementsAre(9));
}

}  // namespace
}  // namespace specdec
