#include "grammar/tables/growing_trie.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace specdec {
namespace {

GrowingTrie::Node add_text(GrowingTrie& trie, std::string_view text) {
  GrowingTrie::Node node = GrowingTrie::kRoot;
  for (const char c : text) {
    node = trie.add(node, static_cast<uint8_t>(c));
  }
  return node;
}

TEST(GrowingTrieTest, EqualTextsAreOneNode) {
  GrowingTrie trie;
  EXPECT_EQ(trie.size(), 1U);
  const auto abc = add_text(trie, "abc");
  EXPECT_EQ(abc, 3U);
  EXPECT_EQ(add_text(trie, "abc"), abc);
  EXPECT_EQ(add_text(trie, "abd"), 4U);
  EXPECT_EQ(add_text(trie, ""), GrowingTrie::kRoot);
  EXPECT_EQ(trie.size(), 5U);
  EXPECT_EQ(trie.child(GrowingTrie::kRoot, 'b'), GrowingTrie::kNone);
  EXPECT_EQ(trie.child(2, 'd'), 4U);
}

TEST(GrowingTrieTest, KnowsTheWayBackAndDown) {
  GrowingTrie trie;
  const auto node = add_text(trie, "xyz");
  std::string back;
  for (auto at = node; at != GrowingTrie::kRoot; at = trie.parent(at)) {
    EXPECT_EQ(trie.length(at), 3 - back.size());
    back += static_cast<char>(trie.symbol(at));
  }
  EXPECT_EQ(back, "zyx");
  add_text(trie, "xa");
  add_text(trie, "x\xFF");
  std::string children;
  for (auto at = trie.newest_child(1); at != GrowingTrie::kNone; at = trie.next_child(at)) {
    children += static_cast<char>(trie.symbol(at));
  }
  EXPECT_EQ(children,
            "\xFF"
            "ay");
  EXPECT_EQ(trie.newest_child(node), GrowingTrie::kNone);
}

}  // namespace
}  // namespace specdec
