#include "experiments/report/example_choice.h"

namespace specdec {
namespace {

constexpr size_t kExampleQuestions = 3;

}  // namespace

bool ExampleChoice::takes(const GenerationKey& key, const std::string& category) {
  const auto& point = point_by_strategy_.try_emplace(key.strategy, key.sweep_point).first->second;
  if (question_by_category_.size() < kExampleQuestions) {
    question_by_category_.try_emplace(category, key.prompt_id);
  }
  const auto question = question_by_category_.find(category);
  return key.repeat == 0 && point == key.sweep_point && question != question_by_category_.end() &&
         question->second == key.prompt_id;
}

}  // namespace specdec
