#include "experiments/metrics/missing_questions.h"

#include <algorithm>

namespace specdec {

QuestionSizes question_sizes(std::span<const GenerationRecord* const> records) {
  QuestionSizes sizes;
  for (const GenerationRecord* record : records) {
    ++sizes[question_of(*record)];
  }
  return sizes;
}

void raise_sizes(QuestionSizes& all, const QuestionSizes& more) {
  for (const auto& [question, size] : more) {
    int64_t& largest = all[question];
    largest = std::max(largest, size);
  }
}

MissingQuestions missing_questions(const QuestionSizes& all, const QuestionSizes& own,
                                   const QuestionSizes& paired) {
  return {.not_run = std::ssize(all) - std::ssize(own),
          .not_by_first = std::ssize(own) - std::ssize(paired),
          .in_part = std::count_if(paired.begin(), paired.end(), [&](const auto& question) {
            return question.second < all.at(question.first);
          })};
}

}  // namespace specdec
