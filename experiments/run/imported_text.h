#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "experiments/metrics/metrics.h"

namespace specdec {

// What the readers of other programs' counts share.

/// Calls `read` with each line and its number.
template <class Read>
void for_each_line(std::string_view text, const Read& read) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    read(text.substr(0, end), number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// Throws Error "name:line: message".
[[noreturn]] void fail_at_line(const std::string& name, int64_t line, const std::string& message);

/// The text without blanks at its ends.
std::string_view trim_blanks(std::string_view text);

/// The number that a text begins with, after blanks; nothing where a word goes on behind it.
std::optional<double> leading_number(std::string_view text);

/// A number as a count. Throws Error, which calls it `what`, where it is none.
int64_t whole_count(std::optional<double> value, const std::string& name, int64_t line,
                    std::string_view what);

/// A measured time. Throws Error where it is none.
double measured_seconds(double value, const std::string& name, int64_t line);

/// Throws Error where more tokens were accepted than drafted.
void check_accepted(const Counts& counts, const std::string& name, int64_t line);

/// Drafted and reached steps by position, where all drafts were as long as there are positions;
/// else they stay unknown.
void fill_equal_lengths(Counts& counts);

}  // namespace specdec
