#include "grammar/tables/fixed_point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <stdexcept>
#include <vector>

namespace specdec {
namespace {

using Ways = std::vector<std::vector<uint32_t>>;  ///< "yes" when all questions of one way are

/// Questions about each other, of which some have no way, and some a way that asks nothing.
std::vector<Ways> random_system(std::mt19937& random) {
  const auto below = [&](size_t n) { return random() % n; };
  std::vector<Ways> system(2 + below(30));
  for (Ways& ways : system) {
    ways.resize(below(4));
    for (std::vector<uint32_t>& way : ways) {
      way.resize(below(12) == 0 ? 0 : 1 + below(3));
      for (uint32_t& part : way) {
        part = static_cast<uint32_t>(below(system.size()));
      }
    }
  }
  return system;
}

std::vector<bool> least_solution(const std::vector<Ways>& system) {
  std::vector<bool> yes(system.size());
  for (size_t round = 0; round < system.size(); ++round) {
    for (size_t i = 0; i < system.size(); ++i) {
      yes[i] =
          yes[i] || std::any_of(system[i].begin(), system[i].end(), [&](const auto& way) {
            return std::all_of(way.begin(), way.end(), [&](uint32_t part) { return yes[part]; });
          });
    }
  }
  return yes;
}

struct Asker {
  const std::vector<Ways>& system;
  const std::vector<bool> truth = least_solution(system);
  FixedPoint questions = {};
  FixedPoint::Answers answers = {};
  size_t asked = 0;
  size_t throws_at = ~size_t{0};

  bool ask(uint32_t i) {
    return questions.ask(answers, i, [&] {
      if (asked++ == throws_at) {
        throw std::runtime_error("interrupted");
      }
      return std::any_of(system[i].begin(), system[i].end(), [&](const auto& way) {
        return std::all_of(way.begin(), way.end(), [&](uint32_t part) { return ask_part(part); });
      });
    });
  }

  bool ask_part(uint32_t part) {
    bool yes = false;
    const bool settled = questions.settles([&] { yes = ask(part); });
    EXPECT_TRUE(yes ? truth[part] : !settled || !truth[part]);
    EXPECT_TRUE(!settled || yes || answers.never(part));
    EXPECT_TRUE(!answers.never(part) || !truth[part]);
    return yes;
  }
};

TEST(FixedPointTest, AnswersAreTheLeastSolutionOfRandomSystems) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<Ways> system = random_system(random);
    Asker asker{.system = system};
    for (size_t n = 0; n < system.size(); ++n) {
      const auto question = static_cast<uint32_t>(random() % system.size());
      bool yes = false;
      ASSERT_TRUE(asker.questions.settles([&] { yes = asker.ask(question); }));
      ASSERT_EQ(yes, asker.truth[question]) << "system " << i;
      ASSERT_EQ(asker.answers.never(question), !yes);
      ASSERT_EQ(asker.questions.open(), 0U);
    }
    // Each "yes" takes back what leaned on it, at most.
    ASSERT_LE(asker.asked, system.size() * (system.size() + 1)) << "system " << i;
  }
}

TEST(FixedPointTest, AQuestionThatThrowsWasNotAsked) {
  std::mt19937 random(2);
  int thrown = 0;
  for (int i = 0; i < 5'000; ++i) {
    const std::vector<Ways> system = random_system(random);
    Asker asker{.system = system};
    asker.throws_at = random() % 10;
    for (uint32_t question = 0; question < system.size(); ++question) {
      try {
        EXPECT_EQ(asker.ask(question), asker.truth[question]);
      } catch (const std::runtime_error&) {
        ++thrown;
        EXPECT_EQ(asker.questions.open(), 0U);
        EXPECT_EQ(asker.ask(question), asker.truth[question]);
      }
    }
  }
  EXPECT_GT(thrown, 1'000);
}

TEST(FixedPointTest, ACircleIsAskedOnce) {
  // Each of 1,000 questions hangs on all others: without memory of a "no" on the way, 1,000! ways.
  constexpr uint32_t kQuestions = 1'000;
  FixedPoint questions;
  FixedPoint::Answers answers;
  size_t asked = 0;
  const std::function<bool(uint32_t)> ask = [&](uint32_t i) {
    return questions.ask(answers, i, [&] {
      ++asked;
      bool yes = false;
      for (uint32_t other = 0; other < kQuestions; ++other) {
        yes |= ask(other);
      }
      return yes;
    });
  };
  EXPECT_FALSE(ask(0));
  EXPECT_EQ(asked, kQuestions);
  EXPECT_TRUE(answers.never(kQuestions - 1));
}

}  // namespace
}  // namespace specdec
