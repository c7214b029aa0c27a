#include "grammar/masks/unspelled.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "grammar/compiled_grammar.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {
namespace {

std::vector<std::string> ascii_tokens() {
  std::vector<std::string> tokens;
  for (char c = 0x20; c < 0x7F; ++c) {
    tokens.emplace_back(1, c);
  }
  tokens.emplace_back(1, 0x7F);
  return tokens;
}

CodePoints unspelled(const std::vector<std::string>& tokens) {
  return find_unspelled(TokenTrie({tokens.begin(), tokens.end()}));
}

TEST(UnspelledTest, CharactersWithoutTheirBytes) {
  std::vector<std::string> tokens = ascii_tokens();
  const CodePoints beyond_ascii({{0x80, CodePoints::kLast}});
  EXPECT_EQ(unspelled(tokens), beyond_ascii);
  tokens.insert(tokens.end(), {"é", "x€", "\xF0\x9F", "\x98\x80", "é€"});
  const CodePoints spelled({{U'é', U'é'}, {0x1F600, 0x1F600}});
  EXPECT_EQ(unspelled(tokens), beyond_ascii.intersect(spelled.complement()));
  tokens.erase(tokens.begin() + ('a' - ' '));
  EXPECT_TRUE(unspelled(tokens).contains('a'));
  for (int byte = 0x80; byte < 0x100; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  EXPECT_EQ(unspelled(tokens), CodePoints({{'a', 'a'}}));
  EXPECT_TRUE(unspelled({}).empty());
}

/// One byte within characters is missing: most characters are spelled, and all are looked at.
TEST(UnspelledTest, OneByteIsMissing) {
  std::vector<std::string> tokens = ascii_tokens();
  for (int byte = 0x80; byte < 0x100; ++byte) {
    if (byte != 0xA9) {
      tokens.emplace_back(1, static_cast<char>(byte));
    }
  }
  const CodePoints found = unspelled(tokens);
  EXPECT_TRUE(found.contains(U'é') && found.contains(U'\u9A69') && found.contains(0x1F629));
  EXPECT_FALSE(found.contains(U'è') || found.contains(U'\u9A2A') || found.contains(0x1F600));
}

/// A model without the bytes of a character writes its escape, and no other.
TEST(UnspelledTest, SchemasWriteTheEscape) {
  std::vector<std::string> tokens = ascii_tokens();
  tokens.insert(tokens.begin(), 2, "");
  const auto vocabulary = std::make_shared<GrammarVocabulary>(
      std::vector<std::string_view>(tokens.begin(), tokens.end()), std::vector{kTinyEnd});
  const auto fixed = compile_json_schema(vocabulary, R"({"const": "né😀"})");
  EXPECT_EQ(fixed->forced_bytes(fixed->start()), "\"n");
  StateId state = fixed->start();
  for (const char byte : std::string_view(R"("n\u00e9\ud83d\ude00")")) {
    const Token token = static_cast<Token>(2 + byte - ' ');
    ASSERT_TRUE(fixed->mask(state).allows(token)) << byte;
    state = fixed->next(state, token);
  }
  EXPECT_TRUE(fixed->is_complete(state));
  const auto plain = compile_json_schema(vocabulary, R"({"const": "né"})");
  EXPECT_EQ(plain->next(plain->start(), R"("\u006e)"), Automaton::kDead);
  EXPECT_EQ(plain->mask(plain->next(plain->start(), "\"n")).count(), 1);
}

}  // namespace
}  // namespace specdec
