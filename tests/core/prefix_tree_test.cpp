// A radix tree of texts against a plain list of them.
#include "core/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "core/error.h"

namespace specdec {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<Token>;

/// What a PrefixTree holds, found by comparing with each text.
class ListOfTexts {
 public:
  struct Text {
    Tokens tokens;
    int64_t shortest;
  };

  static int64_t common(const Tokens& a, const Tokens& b) {
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  }
  /// Most first tokens that a text serves, and the least `shortest` of those that do.
  std::pair<int64_t, int64_t> best(const Tokens& prompt) const {
    std::pair<int64_t, int64_t> best = {0, 0};
    for (const auto& [id, text] : texts) {
      const int64_t length = common(text.tokens, prompt);
      const bool serves = length > 0 && length >= text.shortest;
      if (serves &&
          (length > best.first || (length == best.first && text.shortest < best.second))) {
        best = {length, text.shortest};
      }
    }
    return best;
  }
  std::vector<int64_t> beginnings(const Tokens& tokens) const {
    std::map<size_t, int64_t> by_length;
    for (const auto& [id, text] : texts) {
      if (common(text.tokens, tokens) == std::ssize(text.tokens)) {
        by_length.emplace(text.tokens.size(), id);
      }
    }
    std::vector<int64_t> ids;
    for (const auto& [length, id] : by_length) {
      ids.push_back(id);
    }
    return ids;
  }
  bool has(const Tokens& tokens) const {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const auto& text) { return text.second.tokens == tokens; });
  }
  /// Different beginnings of texts, of any length: the tokens of a tree that shares them all.
  int64_t distinct_beginnings() const {
    std::set<Tokens> beginnings;
    for (const auto& [id, text] : texts) {
      for (auto end = text.tokens.begin() + 1; end <= text.tokens.end(); ++end) {
        beginnings.emplace(text.tokens.begin(), end);
      }
    }
    return std::ssize(beginnings);
  }

  std::map<int64_t, Text> texts;
};

class TreeWalk {
 public:
  TreeWalk(uint32_t seed, int64_t kinds) : random_(seed), kinds_(kinds) {}

  void step() {
    const Tokens tokens = text();
    if (list_.texts.size() > 30 || (below(3) == 0 && !list_.texts.empty())) {
      const auto chosen = std::next(list_.texts.begin(), below(std::ssize(list_.texts)));
      tree_.erase(chosen->first);
      list_.texts.erase(chosen);
    } else if (!list_.has(tokens)) {
      const int64_t shortest = below(2) * below(std::ssize(tokens) + 1);
      tree_.insert(tokens, next_, shortest);
      list_.texts.emplace(next_++, ListOfTexts::Text{tokens, shortest});
    }
    compare(text());
  }

 private:
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  Tokens text() {
    Tokens tokens(static_cast<size_t>(1 + below(12)));
    std::generate(tokens.begin(), tokens.end(), [&] { return static_cast<Token>(below(kinds_)); });
    return tokens;
  }
  void compare(const Tokens& prompt) {
    const PrefixTree::Match found = tree_.match(prompt);
    const auto [length, shortest] = list_.best(prompt);
    ASSERT_EQ(found.length, length);
    if (length > 0) {
      const ListOfTexts::Text& text = list_.texts.at(found.id);
      ASSERT_EQ(text.shortest, shortest);
      ASSERT_GE(ListOfTexts::common(text.tokens, prompt), length);
    }
    ASSERT_EQ(tree_.beginnings(prompt), list_.beginnings(prompt));
    ASSERT_EQ(tree_.texts(), std::ssize(list_.texts));
    ASSERT_LE(tree_.nodes(), 2 * tree_.texts());
    ASSERT_EQ(tree_.tokens(), list_.distinct_beginnings());
  }

  std::mt19937 random_;
  int64_t kinds_;
  PrefixTree tree_;
  ListOfTexts list_;
  int64_t next_ = 0;
};

TEST(PrefixTreeTest, RandomHistoriesFindWhatAListFinds) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TreeWalk walk(seed, 2 + seed % 3);
    for (int step = 0; step < 300 && !testing::Test::HasFatalFailure(); ++step) {
      walk.step();
    }
  }
}

TEST(PrefixTreeTest, SharesWhatTextsBeginWith) {
  PrefixTree tree;
  tree.insert(Tokens{1, 2, 3, 4}, 10);
  tree.insert(Tokens{1, 2, 5}, 11);
  EXPECT_EQ(tree.nodes(), 3) << "a node where they part";
  EXPECT_EQ(tree.tokens(), 5);
  EXPECT_EQ(tree.match(Tokens{1, 2, 3, 9}).length, 3);
  EXPECT_EQ(tree.match(Tokens{1, 2, 5, 9}).id, 11);
  EXPECT_EQ(tree.match(Tokens{2, 1}).id, -1);
  EXPECT_THAT(tree.beginnings(Tokens{1, 2, 5, 9}), ElementsAre(11));
  tree.erase(10);
  EXPECT_EQ(tree.nodes(), 1) << "nothing parts any more";
  EXPECT_EQ(tree.match(Tokens{1, 2, 3, 9}).length, 2);
  tree.erase(11);
  EXPECT_EQ(tree.tokens(), 0);
  EXPECT_THAT(tree.beginnings(Tokens{1, 2, 5}), IsEmpty());
}

TEST(PrefixTreeTest, WhatATextDoesNotServeIsTakenFromAnother) {
  PrefixTree tree;
  tree.insert(Tokens{1, 2, 3, 4, 5, 6}, 1, 5);
  tree.insert(Tokens{1, 2, 7}, 2, 1);
  EXPECT_EQ(tree.match(Tokens{1, 2, 3, 4, 5, 9}).id, 1);
  const PrefixTree::Match shorter = tree.match(Tokens{1, 2, 3, 9});
  EXPECT_EQ(shorter.id, 2) << "the first one serves no three tokens";
  EXPECT_EQ(shorter.length, 2);
}

TEST(PrefixTreeTest, MisuseThrows) {
  PrefixTree tree;
  tree.insert(Tokens{1, 2}, 1);
  EXPECT_THROW(tree.insert(Tokens{}, 2), InternalError);
  EXPECT_THROW(tree.insert(Tokens{1, 2}, 2), InternalError);
  EXPECT_THROW(tree.insert(Tokens{3}, 1), InternalError);
  EXPECT_THROW(tree.erase(2), InternalError);
  EXPECT_EQ(tree.texts(), 1);
  EXPECT_EQ(tree.match({}).id, -1);
}

}  // namespace
}  // namespace specdec
