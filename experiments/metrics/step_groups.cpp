#include "experiments/metrics/step_groups.h"

#include <string>
#include <vector>

namespace specdec {
namespace {

/// The steps of one group, and their drafts by question.
struct GroupSums {
  StepGroup group;
  std::map<std::string, QuestionShare> questions = {};

  void add(const std::string& question, const StepStatistics& step) {
    ++group.steps;
    group.drafted += step.drafted;
    group.accepted += step.accepted;
    group.committed += step.committed;
    if (step.drafted > 0) {
      questions[question].part += static_cast<double>(step.accepted);
      questions[question].whole += static_cast<double>(step.drafted);
    }
  }
  StepGroup finish() const {
    std::vector<QuestionShare> shares;
    for (const auto& [question, share] : questions) {
      shares.push_back(share);
    }
    StepGroup finished = group;
    finished.questions = std::ssize(shares);
    finished.acceptance_interval = share_interval(shares);
    return finished;
  }
};

bool adds_up(const Generation& generation) {
  int64_t tokens = 1;  // which the prefill yields
  for (const StepStatistics& step : generation.steps) {
    tokens += step.committed;
  }
  return tokens == std::ssize(generation.tokens);
}

Phase phase_at(const GenerationRecord& record, int64_t position) {
  const auto& thinking = record.thinking;
  return thinking && position >= thinking->begin && position < thinking->end ? Phase::kThinking
                                                                             : Phase::kAnswer;
}

}  // namespace

std::optional<double> acceptance_rate(const StepGroup& group) {
  return group.drafted == 0 ? std::nullopt
                            : std::optional(static_cast<double>(group.accepted) /
                                            static_cast<double>(group.drafted));
}

std::optional<double> tokens_per_step(const StepGroup& group) {
  return group.steps == 0 ? std::nullopt
                          : std::optional(static_cast<double>(group.committed) /
                                          static_cast<double>(group.steps));
}

int64_t context_bucket(int64_t length) {
  int64_t bucket = 0;
  for (int64_t end = kShortContext; length >= end; end *= 2) {
    bucket = end;
  }
  return bucket;
}

StepGroups group_steps(std::span<const GenerationRecord* const> records) {
  std::array<GroupSums, 2> phases;
  std::map<int64_t, GroupSums> contexts;
  for (const GenerationRecord* record : records) {
    if (!adds_up(record->generation)) {
      continue;
    }
    int64_t position = 1;  // after the prefill's token
    for (const StepStatistics& step : record->generation.steps) {
      const std::string& question = question_of(*record);
      phases[static_cast<size_t>(phase_at(*record, position))].add(question, step);
      contexts[context_bucket(record->prompt_tokens + position)].add(question, step);
      position += step.committed;
    }
  }
  StepGroups groups;
  for (size_t i = 0; i < phases.size(); ++i) {
    groups.by_phase[i] = phases[i].finish();
  }
  for (const auto& [bucket, sums] : contexts) {
    groups.by_context[bucket] = sums.finish();
  }
  return groups;
}

}  // namespace specdec
