#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace specdec {

/// What a gnuplot script prints; none when gnuplot is not installed, fails or hangs (20 s).
std::optional<std::string> run_gnuplot(std::string_view script);

/// A text as a string of gnuplot's language, quotes included, that cannot end early, run a command
/// or break its line: control characters become spaces, bytes that are not UTF-8 become '?', and
/// what is longer than `max_characters` ends with an ellipsis.
std::string quote_for_gnuplot(std::string_view text, size_t max_characters);

}  // namespace specdec
