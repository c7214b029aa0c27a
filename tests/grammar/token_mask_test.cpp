#include "grammar/token_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

namespace specdec {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

struct MaskCase {
  std::set<Token> allowed;
  TokenMask mask;
};

MaskCase random_case(std::mt19937& random) {
  const auto vocab_size = static_cast<int64_t>(1 + random() % 130);
  TokenMask::Content content;
  MaskCase result;
  if (random() % 4 != 0) {
    auto base = std::make_shared<MaskWords>((static_cast<size_t>(vocab_size) + 31) / 32);
    for (Token token = 0; token < vocab_size; ++token) {
      if (random() % 2 == 0) {
        (*base)[static_cast<size_t>(token) / 32] |= 1U << (token % 32);
        result.allowed.insert(token);
      }
    }
    content.base = base;
  }
  for (Token token = 0; token < vocab_size; ++token) {
    const bool in_base = result.allowed.count(token) > 0;
    if (random() % 10 == 0) {
      (in_base ? content.removed : content.added).push_back(token);
      in_base ? static_cast<void>(result.allowed.erase(token))
              : static_cast<void>(result.allowed.insert(token));
    }
  }
  result.mask = TokenMask(std::make_shared<TokenMask::Content>(content), vocab_size);
  return result;
}

template <class Float>
void expect_applied(const MaskCase& test, size_t padding) {
  std::vector<Float> logits(static_cast<size_t>(test.mask.vocab_size()) + padding);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<Float>(i) - 3;
  }
  apply_mask(test.mask, std::span<Float>(logits));
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool allowed = test.allowed.count(static_cast<Token>(i)) > 0;
    EXPECT_EQ(logits[i],
              allowed ? static_cast<Float>(i) - 3 : -std::numeric_limits<Float>::infinity());
  }
}

TEST(TokenMaskTest, RandomMasksAgainstSets) {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const MaskCase test = random_case(random);
    const std::vector<Token> allowed(test.allowed.begin(), test.allowed.end());
    EXPECT_THAT(test.mask.tokens(), ElementsAreArray(allowed));
    EXPECT_EQ(test.mask.count(), static_cast<int64_t>(allowed.size()));
    EXPECT_EQ(test.mask.single(), allowed.size() == 1 ? allowed[0] : -1);
    std::vector<uint32_t> words((static_cast<size_t>(test.mask.vocab_size()) + 31) / 32, ~0U);
    test.mask.write(words);
    for (Token token = 0; token < static_cast<Token>(words.size() * 32); ++token) {
      const bool expected = test.allowed.count(token) > 0;
      EXPECT_EQ((words[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0, expected);
      if (token < test.mask.vocab_size()) {
        EXPECT_EQ(test.mask.allows(token), expected);
      }
    }
    expect_applied<float>(test, i % 3 == 0 ? 7 : 0);
    expect_applied<double>(test, i % 3 == 1 ? 1 : 0);
  }
}

TEST(TokenMaskTest, NothingIsAllowedOutsideTheVocabulary) {
  auto base = std::make_shared<MaskWords>(1, ~0U);
  const TokenMask mask(std::make_shared<TokenMask::Content>(TokenMask::Content{base, {}, {}}), 5);
  EXPECT_FALSE(mask.allows(-1));
  EXPECT_FALSE(mask.allows(5));
  EXPECT_FALSE(mask.allows(1'000));
}

TEST(TokenMaskTest, Empty) {
  EXPECT_EQ(TokenMask().count(), 0);
  EXPECT_EQ(TokenMask().single(), -1);
  const TokenMask one(std::make_shared<TokenMask::Content>(TokenMask::Content{nullptr, {4}, {}}),
                      9);
  EXPECT_EQ(one.single(), 4);
  EXPECT_THAT(one.tokens(), ElementsAre(4));
}

}  // namespace
}  // namespace specdec
