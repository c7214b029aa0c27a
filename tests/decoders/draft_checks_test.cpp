#include "decoders/draft_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/randomness.h"
#include "decoders/shapes/chain.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::HasSubstr;

constexpr int64_t kVocab = 10;

/// What is said of a spoilt draft where 4 tokens fit, 3 deep, after token 7.
std::string refusal(const std::function<void(Draft&)>& spoil) {
  const std::vector<Token> committed = {5, 7};
  CounterRandomness random(1);
  const SamplingParams sampling;
  FixedDraftLength shape(4);
  const DraftContext context{.committed = committed,
                             .last_step = nullptr,
                             .prompt_result = nullptr,
                             .random = random,
                             .sampling = sampling,
                             .grammar = nullptr,
                             .max_tokens = 4,
                             .max_depth = 3,
                             .max_branches = 2,
                             .shape = shape};
  Draft draft = Draft::root(7);
  draft.add(1, 0);
  draft.add(2, 0);
  draft.add(3, 1);
  spoil(draft);
  return error_message<InternalError>([&] { check_draft(draft, context); });
}

TEST(DraftChecksTest, ATreeWithinTheLimitsPasses) {
  EXPECT_EQ(refusal([](Draft&) {}), "no error");
  EXPECT_EQ(refusal([](Draft& draft) { draft = Draft::root(7); }), "no error");
  EXPECT_EQ(refusal([](Draft& draft) { draft.add(4, 3); }), "no error");
}

TEST(DraftChecksTest, DraftsThatAreNoTreeOfTheNewestTokenAreRefused) {
  EXPECT_THAT(refusal([](Draft& draft) { draft = {}; }), HasSubstr("root"));
  EXPECT_THAT(refusal([](Draft& draft) { draft.tokens[0] = 6; }), HasSubstr("root"));
  EXPECT_THAT(refusal([](Draft& draft) { draft.parents[0] = 0; }), HasSubstr("root has no parent"));
  EXPECT_THAT(refusal([](Draft& draft) { draft.parents[2] = 2; }),
              HasSubstr("node 2 of a draft has parent 2"));
  EXPECT_THAT(refusal([](Draft& draft) { draft.parents[1] = 3; }),
              HasSubstr("node 1 of a draft has parent 3"));
  EXPECT_THAT(refusal([](Draft& draft) { draft.parents[3] = -1; }), HasSubstr("parent -1"));
  EXPECT_THAT(refusal([](Draft& draft) { draft.tokens.push_back(1); }),
              HasSubstr("5 tokens with 4 parents and 4 child_probs"));
  EXPECT_THAT(refusal([](Draft& draft) { draft.child_probs.pop_back(); }),
              HasSubstr("3 child_probs"));
}

TEST(DraftChecksTest, DraftsBeyondTheLimitsAreRefused) {
  EXPECT_THAT(refusal([](Draft& draft) {
                draft.add(4, 1);
                draft.add(5, 2);
              }),
              HasSubstr("proposed 5 tokens where 4 fit"));
  EXPECT_THAT(refusal([](Draft& draft) {
                draft = Draft::root(7);
                for (int64_t node = 0; node < 4; ++node) {
                  draft.add(1, node);
                }
              }),
              HasSubstr("a path of 4 tokens where 3 fit"));
}

std::string refusal(const VerifyResult& result) {
  Draft draft = Draft::root(7);
  draft.add(1, 0);
  draft.add(2, 0);
  draft.add(3, 1);
  return error_message<InternalError>([&] { check_result(draft, result, kVocab); });
}

TEST(DraftChecksTest, ResultsArePathsFromTheRootAndATokenOfTheVocabulary) {
  EXPECT_EQ(refusal(VerifyResult{.path = {0}, .next = 0}), "no error");
  EXPECT_EQ(refusal(VerifyResult{.path = {0, 1, 3}, .next = 9}), "no error");
  EXPECT_THAT(refusal(VerifyResult{.path = {}, .next = 1}), HasSubstr("empty"));
  EXPECT_THAT(refusal(VerifyResult{.path = {1}, .next = 1}), HasSubstr("node 1 after node -1"));
  EXPECT_THAT(refusal(VerifyResult{.path = {0, 3}, .next = 1}), HasSubstr("node 3 after node 0"));
  EXPECT_THAT(refusal(VerifyResult{.path = {0, 1, 2}, .next = 1}), HasSubstr("no path"));
  EXPECT_THAT(refusal(VerifyResult{.path = {0, 4}, .next = 1}), HasSubstr("node 4"));
  EXPECT_THAT(refusal(VerifyResult{.path = {0}, .next = 10}), HasSubstr("token 10 comes next"));
  EXPECT_THAT(refusal(VerifyResult{.path = {0}, .next = -1}), HasSubstr("token -1"));
}

}  // namespace
}  // namespace specdec
