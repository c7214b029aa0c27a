#include "grammar/tables/token_trie.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace specdec {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

TEST(TokenTrieTest, Small) {
  const TokenTrie trie({"", "ab", "a", "b", "ab", "\xff"});
  EXPECT_EQ(trie.vocab_size(), 6);
  EXPECT_EQ(trie.size(), 5U);  // "", a, ab, b, ff
  EXPECT_THAT(trie.tokens(0), IsEmpty());
  EXPECT_THAT(trie.tokens(trie.find(0, "ab")), ElementsAre(1, 4));
  EXPECT_THAT(trie.tokens_below(trie.find(0, "a")), ElementsAre(2, 1, 4));
  EXPECT_EQ(trie.find(0, "abc"), TokenTrie::kNone);
  EXPECT_EQ(trie.find(0, ""), 0U);
  EXPECT_EQ(trie.byte(trie.child(0, 0xff)), 0xff);
  EXPECT_EQ(trie.child(0, 'x'), TokenTrie::kNone);
}

TEST(TokenTrieTest, NoTokens) {
  const TokenTrie trie({});
  EXPECT_EQ(trie.size(), 1U);
  EXPECT_EQ(trie.end(0), 1U);
  EXPECT_THAT(trie.tokens_below(0), IsEmpty());
  EXPECT_EQ(trie.child(0, 'a'), TokenTrie::kNone);
}

struct Reference {
  std::vector<std::string> texts;
  std::map<std::string, std::vector<Token>> tokens;
  std::set<std::string> nodes = {""};  ///< in depth-first order
};

Reference random_texts(uint32_t seed) {
  std::mt19937 random(seed);
  Reference result;
  for (Token token = 0; token < 400; ++token) {
    std::string text;
    for (uint32_t i = random() % 7; i > 0; --i) {
      text += static_cast<char>(random() % 8 == 0 ? random() % 256 : 'a' + random() % 3);
    }
    for (size_t i = 1; i <= text.size(); ++i) {
      result.nodes.insert(text.substr(0, i));
    }
    if (!text.empty()) {
      result.tokens[text].push_back(token);
    }
    result.texts.push_back(std::move(text));
  }
  return result;
}

/// std::string compares bytes as unsigned, and a prefix comes first: the order of the nodes.
TEST(TokenTrieTest, RandomTextsAgainstMaps) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Reference reference = random_texts(seed);
    const TokenTrie trie({reference.texts.begin(), reference.texts.end()});
    ASSERT_EQ(trie.size(), reference.nodes.size());
    std::map<std::string, TokenTrie::Node> found;
    for (const std::string& text : reference.nodes) {
      const TokenTrie::Node node = trie.find(0, text);
      ASSERT_NE(node, TokenTrie::kNone);
      found[text] = node;
      EXPECT_EQ(trie.depth(node), text.size());
      const auto tokens = reference.tokens.find(text);
      EXPECT_THAT(trie.tokens(node),
                  ElementsAreArray(tokens == reference.tokens.end() ? std::vector<Token>()
                                                                    : tokens->second));
      if (!text.empty()) {
        EXPECT_EQ(trie.byte(node), static_cast<uint8_t>(text.back()));
        EXPECT_EQ(trie.child(found.at(text.substr(0, text.size() - 1)),
                             static_cast<uint8_t>(text.back())),
                  node);
      }
    }
    for (const auto& [text, node] : found) {
      std::set<TokenTrie::Node> subtree;
      std::vector<Token> below;
      for (auto at = reference.nodes.find(text);
           at != reference.nodes.end() && at->starts_with(text); ++at) {
        subtree.insert(found.at(*at));
        const auto tokens = reference.tokens.find(*at);
        if (tokens != reference.tokens.end()) {
          below.insert(below.end(), tokens->second.begin(), tokens->second.end());
        }
      }
      EXPECT_EQ(*subtree.begin(), node);
      EXPECT_EQ(trie.end(node), node + subtree.size());
      EXPECT_THAT(trie.tokens_below(node), ElementsAreArray(below));
    }
  }
}

TEST(TokenTrieTest, ChildrenInARow) {
  const Reference reference = random_texts(99);
  const TokenTrie trie({reference.texts.begin(), reference.texts.end()});
  for (TokenTrie::Node node = 0; node < trie.size(); ++node) {
    TokenTrie::Node expected = node + 1;
    for (int byte = 0; byte < 256; ++byte) {
      const TokenTrie::Node child = trie.child(node, static_cast<uint8_t>(byte));
      if (child != TokenTrie::kNone) {
        EXPECT_EQ(child, expected);
        expected = trie.end(child);
      }
    }
    EXPECT_EQ(expected, trie.end(node));
  }
}

}  // namespace
}  // namespace specdec
