#include "experiments/certify/given_first.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace specdec {
namespace {

/// Beginnings rarer than this are not looked at.
constexpr double kMinFirst = 1e-3;

}  // namespace

NextLogits given_first(NextLogits logits, size_t prompt_size, Token first) {
  return [logits = std::move(logits), prompt_size, first](TokenSpan history) {
    auto row = logits(history);
    if (history.size() == prompt_size) {
      std::fill(row.begin(), row.end(), -std::numeric_limits<double>::infinity());
      row[static_cast<size_t>(first)] = 0.0;
    }
    return row;
  };
}

std::optional<Token> likely_first(const NextLogits& logits, Task task) {
  task.stop.max_new_tokens = 1;
  std::optional<Token> best;
  double most = 0.0;
  for (const auto& [output, mass] : likely_prefixes(logits, task, kMinFirst)) {
    if (!output.empty() && !task.stop.reason(output.front()) && mass > most) {
      best = output.front();
      most = mass;
    }
  }
  return best;
}

}  // namespace specdec
