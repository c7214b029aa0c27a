#include "experiments/run/imported_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "core/ascii.h"
#include "core/error.h"

namespace specdec {
namespace {

constexpr double kMaxCount = 1e15;
constexpr double kMaxSeconds = 1e10;

bool is_of_word(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '.'; }

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
  const bool goes_on = end != text.data() + text.size() && is_of_word(*end);  // as "0x10", "1.5.5"
  return failure == std::errc() && std::isfinite(value) && !goes_on ? std::optional(value)
                                                                    : std::nullopt;
}

double measured_seconds(double value, const std::string& name, int64_t line) {
  if (value < 0.0 || value > kMaxSeconds) {
    fail_at_line(name, line, fmt::format("{} is no time in seconds", value));
  }
  return value;
}

void check_accepted(const Counts& counts, const std::string& name, int64_t line) {
  if (counts.accepted > counts.drafted) {
    fail_at_line(name, line,
                 fmt::format("{} of {} drafted tokens accepted", counts.accepted, counts.drafted));
  }
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
