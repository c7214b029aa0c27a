#include "decoders/draft_checks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/randomness.h"
#include "decoders/shapes/draft_length.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::HasSubstr;

constexpr int64_t kVocab = 10;

/// The context of a step after token 7, where 4 tokens fit, 3 deep, and 2 to a node.
class CheckedStep {
 public:
  DraftContext context() {
    return {.committed = committed_,
            .last_step = nullptr,
            .prompt_result = nullptr,
            .random = random_,
            .sampling = sampling_,
            .grammar = nullptr,
            .max_tokens = 4,
            .max_depth = 3,
            .max_branches = 2,
            .shape = shape_,
            .vocab_size = kVocab};
  }

 private:
  std::vector<Token> committed_ = {5, 7};
  CounterRandomness random_{1};
  SamplingParams sampling_;
  FixedDraftLength shape_{4};
};

/// What is said of a spoilt draft.
std::string refusal(const std::function<void(Draft&)>& spoil) {
  CheckedStep step;
  Draft draft = Draft::root(7);
  draft.add(1, 0);
  draft.add(2, 0);
  draft.add(3, 1);
  spoil(draft);
  return error_message<InternalError>([&] { check_draft(draft, step.context()); });
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

TEST(DraftChecksTest, TokensOutsideTheVocabularyAreRefused) {
  EXPECT_EQ(refusal([](Draft& draft) { draft.tokens[3] = kVocab - 1; }), "no error");
  EXPECT_THAT(refusal([](Draft& draft) { draft.tokens[3] = kVocab; }),
              HasSubstr("node 3 of a draft is token 10, and the vocabulary has 10"));
  EXPECT_THAT(refusal([](Draft& draft) { draft.tokens[1] = -1; }), HasSubstr("token -1"));
}

/// Gives the root's children this distribution.
std::string refusal_of_probs(const std::vector<double>& row, int64_t index = 0) {
  return refusal([&](Draft& draft) {
    draft.probs = {TokenProbs(row)};
    draft.child_probs[0] = index;
  });
}

TEST(DraftChecksTest, DistributionsThatAreNoneAreRefused) {
  const std::vector<double> flat(kVocab, 0.1);
  EXPECT_EQ(refusal_of_probs(flat), "no error");
  EXPECT_EQ(refusal_of_probs(flat, -1), "no error");
  EXPECT_THAT(refusal_of_probs(flat, 1),
              HasSubstr("child_probs of node 0 is 1, and the draft has 1 distributions"));
  EXPECT_THAT(refusal_of_probs(flat, -2), HasSubstr("child_probs of node 0 is -2"));
  EXPECT_THAT(refusal_of_probs(std::vector<double>(kVocab + 2, 1.0 / (kVocab + 2))),
              HasSubstr("is over 12 tokens, and the vocabulary has 10"));
  EXPECT_THAT(refusal_of_probs(std::vector<double>(kVocab, 0.2)),
              HasSubstr("distribution 0 of a draft sums to 2, not to 1"));
  EXPECT_THAT(refusal_of_probs(std::vector<double>(kVocab, std::nan(""))),
              HasSubstr("sums to nan, not to 1"));
}

/// What is said where a drafter with these needs is shown the prompt's result, the last step's or
/// neither.
std::string refusal_of_needs(const Needs& needs, const ForwardResult* prompt,
                             const StepResult* last_step) {
  CheckedStep step;
  DraftContext context = step.context();
  context.last_step = last_step;
  context.prompt_result = prompt;
  return error_message<InternalError>([&] { check_needs(needs, context); });
}

TEST(DraftChecksTest, StrategiesGiveDraftersWhatTheyNeed) {
  const Tensor some = at::zeros({1, 3});
  const ForwardResult prompt;
  const StepResult bare;
  StepResult full;
  full.result = {.logits = some, .final_hidden = some, .captured = {some}};
  EXPECT_EQ(refusal_of_needs({}, nullptr, nullptr), "no error");
  EXPECT_EQ(refusal_of_needs({}, nullptr, &bare), "no error");
  EXPECT_EQ(refusal_of_needs({.logits = true}, nullptr, nullptr), "no error");
  for (const Needs& needs : {Needs{.internals = true}, Needs{.capture_layers = {1}}}) {
    EXPECT_THAT(refusal_of_needs(needs, nullptr, nullptr), HasSubstr("prompt_result has none"));
    EXPECT_EQ(refusal_of_needs(needs, &prompt, nullptr), "no error");
  }
  for (const Needs& needs :
       {Needs{.internals = true}, Needs{.capture_layers = {1}}, Needs{.logits = true}}) {
    EXPECT_THAT(refusal_of_needs(needs, nullptr, &bare), HasSubstr("the last step's forward"));
    EXPECT_EQ(refusal_of_needs(needs, nullptr, &full), "no error");
  }
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
