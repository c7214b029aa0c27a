#include "tests/support/reference_beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

namespace specdec {
namespace {

constexpr double kNever = -1e9;

struct Slot {
  std::vector<Token> tokens;
  double score = kNever;
  bool finished = false;
};

std::vector<double> log_probs(const LogitTable& target, const Task& task,
                              const std::vector<Token>& history) {
  std::vector<double> values = target(history);
  for (const auto& [token, summand] : task.sampling.logit_bias) {
    values[static_cast<size_t>(token)] += summand;
  }
  double sum = 0.0;
  for (const double value : values) {
    sum += std::exp(value);
  }
  for (double& value : values) {
    value -= std::log(sum);
  }
  const double penalty = task.sampling.repetition_penalty;
  for (const Token token : std::set<Token>(history.begin(), history.end())) {
    double& value = values[static_cast<size_t>(token)];
    value = value < 0.0 ? value * penalty : value / penalty;
  }
  return values;
}

/// The `count` slots of the highest score, in order.
std::vector<Slot> top(std::vector<Slot> slots, int64_t count) {
  std::stable_sort(slots.begin(), slots.end(),
                   [](const Slot& a, const Slot& b) { return a.score > b.score; });
  slots.resize(static_cast<size_t>(count));
  return slots;
}

bool all_finished(const std::vector<Slot>& slots) {
  return std::all_of(slots.begin(), slots.end(), [](const Slot& slot) { return slot.finished; });
}

/// Whether the best running beam may beat the worst hypothesis, each slot compared by itself.
bool improvement_possible(const std::vector<Slot>& running, const std::vector<Slot>& finished,
                          double length, const BeamOptions& options, double longest) {
  const bool never =
      options.early_stopping == EarlyStopping::kNever && options.length_penalty > 0.0;
  const double best =
      running.front().score / std::pow(never ? longest : length, options.length_penalty);
  double worst = finished.front().score;
  for (const Slot& slot : finished) {
    worst = std::min(worst, slot.score);
  }
  return std::any_of(finished.begin(), finished.end(),
                     [&](const Slot& slot) { return best > (slot.finished ? worst : kNever); });
}

}  // namespace

std::vector<Hypothesis> reference_beam_search(const LogitTable& target, const Task& task,
                                              const BeamOptions& options) {
  std::set<Token> ends(task.stop.end_ids.begin(), task.stop.end_ids.end());
  ends.insert(task.stop.stop_ids.begin(), task.stop.stop_ids.end());
  const int64_t beams = options.num_beams;
  const int64_t kept = std::max<int64_t>(2, 1 + static_cast<int64_t>(ends.size())) * beams;
  std::vector<Slot> running(static_cast<size_t>(beams), Slot{task.prompt});
  running.front().score = 0.0;
  std::vector<Slot> finished(static_cast<size_t>(beams), Slot{task.prompt});
  const int64_t longest = task.stop.max_new_tokens;
  for (int64_t length = 1;; ++length) {
    std::vector<Slot> continuations;
    for (const Slot& beam : running) {
      const std::vector<double> values = log_probs(target, task, beam.tokens);
      for (size_t token = 0; token < values.size(); ++token) {
        continuations.push_back({beam.tokens, beam.score + values[token], false});
        continuations.back().tokens.push_back(static_cast<Token>(token));
      }
    }
    continuations = top(std::move(continuations), kept);
    std::vector<Slot> next = continuations;
    std::vector<Slot> merged = finished;
    bool all_hit = true;
    for (size_t rank = 0; rank < continuations.size(); ++rank) {
      const Slot& one = continuations[rank];
      const bool hit = ends.count(one.tokens.back()) > 0 || length == longest;
      all_hit &= hit;
      next[rank].score += hit ? kNever : 0.0;
      const bool just_finished = hit && static_cast<int64_t>(rank) < beams;
      const double score =
          one.score / std::pow(static_cast<double>(length), options.length_penalty);
      merged.push_back({one.tokens, score + (just_finished ? 0.0 : kNever), just_finished});
    }
    running = top(std::move(next), beams);
    finished = top(std::move(merged), beams);
    const bool full = all_finished(finished) && options.early_stopping == EarlyStopping::kTrue;
    if (full || all_hit ||
        !improvement_possible(running, finished, static_cast<double>(length), options,
                              static_cast<double>(longest))) {
      break;
    }
  }
  std::vector<Hypothesis> hypotheses;
  for (const Slot& slot : finished) {
    if (slot.finished) {
      hypotheses.push_back({slot.tokens, slot.score});
    }
  }
  return hypotheses;
}

}  // namespace specdec
