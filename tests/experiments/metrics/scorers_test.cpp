#include "experiments/metrics/scorers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace specdec {
namespace {

using testing::HasSubstr;

bool number_is(const std::string& reference, const std::string& answer) {
  return is_right(make_answer_key("number", reference), answer);
}

TEST(ScorersTest, TheFinalNumberCounts) {
  EXPECT_TRUE(number_is("72", "48 in April and 24 in May: 72."));
  EXPECT_FALSE(number_is("72", "72 is what one may think, but it is 71."));
  EXPECT_FALSE(number_is("7", "It is 72."));
  EXPECT_FALSE(number_is("72", "I do not know."));
  EXPECT_FALSE(number_is("72", ""));
}

TEST(ScorersTest, TheMarkOfGsm8kComesFirst) {
  EXPECT_TRUE(number_is("#### 72", "so 70 + 2\n#### 72\nQuestion: what is 5?"));
  EXPECT_FALSE(number_is("5", "so 70 + 2\n#### 72\nQuestion: what is 5?"));
  EXPECT_FALSE(number_is("5", "5 ####")) << "nothing after the mark";
}

TEST(ScorersTest, TheSameNumberIsWrittenInManyWays) {
  for (const char* answer : {"1000", "1,000", "$1,000.", "it costs 1000.00 dollars", "01000"}) {
    EXPECT_TRUE(number_is("1,000", answer)) << answer;
  }
  EXPECT_TRUE(number_is("0.5", "about .50"));
  EXPECT_TRUE(number_is("-3", "x = -3"));
  EXPECT_TRUE(number_is("-3", "-$3.00"));
  EXPECT_FALSE(number_is("-3", "x = 3"));
  EXPECT_TRUE(number_is("3", "the score is 5-3")) << "a dash between numbers is no sign";
  EXPECT_TRUE(number_is("0", "-0.00"));
  EXPECT_FALSE(number_is("1.5", "15"));
  // More digits than a floating-point number holds.
  EXPECT_FALSE(number_is("90071992547409930", "90071992547409931"));
}

TEST(ScorersTest, ARegexMatchesSomePart) {
  const auto key = make_answer_key("regex", "[Pp]aris\\b");
  EXPECT_TRUE(is_right(key, "The capital is Paris."));
  EXPECT_FALSE(is_right(key, "The Parisian capital"));
  // An expression that backtracking engines take forever for.
  EXPECT_FALSE(is_right(make_answer_key("regex", "^(a+)+$"), std::string(5000, 'a') + "b"));
}

std::string key_refusal(const std::string& scorer, const std::string& reference) {
  try {
    (void)make_answer_key(scorer, reference);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ScorersTest, RefusesKeysThatNoAnswerCouldMeet) {
  EXPECT_THAT(key_refusal("exact", "4"),
              HasSubstr("'scorer' must be number, regex or program, not 'exact'"));
  EXPECT_THAT(key_refusal("number", "four"), HasSubstr("must end with its number"));
  EXPECT_THAT(key_refusal("number", "4 apples"), HasSubstr("not '4 apples'"));
  EXPECT_THAT(key_refusal("regex", "(a"), HasSubstr("is no regular expression"));
  EXPECT_EQ(key_refusal("number", "she has 4"), "accepted");
}

}  // namespace
}  // namespace specdec
