#include "grammar/forced_tokens.h"

#include <gmock/gmock.h>

#include "core/tokenizers/sentencepiece_tokenizer.h"
#include "grammar/grammar_source.h"
#include "tests/support/letter_tokenizer.h"
#include "tests/support/tokenizer_fixture.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<std::string> kForcedPieces = {"a", "b", "ab", "ba", ""};  // the last one ends

GrammarMatcher forced_place(const std::string& pattern, const std::vector<Token>& accepted = {}) {
  static const auto kLetters = std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(kForcedPieces.begin(), kForcedPieces.end()),
      std::vector<Token>{4});
  GrammarSource source;
  source.kind = GrammarKind::kRegex;
  source.text = pattern;
  GrammarMatcher place(compile_grammar(kLetters, source));
  for (const Token token : accepted) {
    EXPECT_TRUE(place.accept(token)) << token;
  }
  return place;
}

TEST(ForcedTokensTest, ForcedTokensAreTheOnlyOnesOfTheirMasks) {
  EXPECT_THAT(forced_tokens(forced_place("aaab?"), 9), ElementsAre(0, 0));  // then a or ab
  EXPECT_THAT(forced_tokens(forced_place("aaa"), 9), ElementsAre(0, 0, 0)) << "without the end";
  EXPECT_THAT(forced_tokens(forced_place("aaa"), 2), ElementsAre(0, 0));
  EXPECT_THAT(forced_tokens(forced_place("aaa"), 0), IsEmpty());
  EXPECT_THAT(forced_tokens(forced_place("a?"), 9), IsEmpty()) << "the text may end";
}

TEST(ForcedTokensTest, ForcedBytesAreCutAsTheTokenizerCutsThem) {
  const LetterTokenizer letters(kForcedPieces);
  // "b", then "a" or "b", then nothing but "aabab": forced is only its first token.
  const GrammarMatcher place = forced_place("b(a|b)aabab(a|b)*", {1});
  EXPECT_THAT(forced_text_tokens(place, &letters, std::vector<Token>{1}, 9), IsEmpty());
  const GrammarMatcher later = forced_place("b(a|b)aabab(aa|ab)", {1, 1});
  EXPECT_THAT(forced_tokens(later, 9), ElementsAre(0));
  const std::vector<Token> output = {1, 1};
  // a, then ab, ab; the a after it is forced too, but "ab" may follow: it is left out.
  EXPECT_THAT(forced_text_tokens(later, &letters, output, 9), ElementsAre(0, 2, 2));
  EXPECT_THAT(forced_text_tokens(later, &letters, output, 2), ElementsAre(0, 2));
  EXPECT_THAT(forced_text_tokens(later, nullptr, output, 9), ElementsAre(0)) << "no tokenizer";
}

// Llama 2's tokenizer would put a space before a text that stands alone.
TEST(ForcedTokensTest, APrefixSpaceIsNotForced) {
  const auto tokenizer =
      sentencepiece_tokenizer(tokenizer_fixture("llama2/tokenizer.model"), "llama2");
  const auto vocabulary = make_grammar_vocabulary(*tokenizer, std::vector<Token>{2});
  GrammarSource source;
  source.kind = GrammarKind::kRegex;
  source.text = "(t|r)the friend, speak";
  GrammarMatcher place(compile_grammar(vocabulary, source));
  const Token t = tokenizer->find_piece("t").value();
  ASSERT_TRUE(place.accept(t));
  for (const std::vector<Token>& output : {std::vector<Token>{}, std::vector<Token>{t}}) {
    const auto forced = forced_text_tokens(place, tokenizer.get(), output, 99);
    EXPECT_EQ(tokenizer->decode(forced), "the friend, speak");
  }
}

}  // namespace
}  // namespace specdec
