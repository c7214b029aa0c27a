#include "experiments/run/imported_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "core/error.h"

namespace specdec {
namespace {

constexpr double kMaxCount = 1e15;

}  // namespace

[[noreturn]] void fail_at_line(const std::string& name, int64_t line, const std::string& message) {
  throw Error(fmt::format("{}:{}: {}", name, line, message));
}

std::string_view trim_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<double> leading_number(std::string_view text) {
  text = trim_blanks(text);
  double value = 0.0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

int64_t whole_count(std::optional<double> value, const std::string& name, int64_t line,
                    std::string_view what) {
  if (!value || *value < 0.0 || *value > kMaxCount || *value != std::floor(*value)) {
    fail_at_line(name, line, fmt::format("{} is not a count: a whole number of at least 0", what));
  }
  return static_cast<int64_t>(*value);
}

void fill_equal_lengths(Counts& counts) {
  const auto positions = static_cast<int64_t>(counts.accepted_at.size());
  if (positions == 0 || counts.drafted != counts.drafting_steps * positions) {
    return;
  }
  counts.drafted_at.assign(counts.accepted_at.size(), counts.drafting_steps);
  counts.reached_at = {counts.drafting_steps};
  counts.reached_at.insert(counts.reached_at.end(), counts.accepted_at.begin(),
                           counts.accepted_at.end() - 1);
}

}  // namespace specdec
