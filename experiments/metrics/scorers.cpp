#include "experiments/metrics/scorers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "core/ascii.h"
#include "core/error.h"
#include "grammar/regex/regex_parser.h"

namespace specdec {
namespace {

/// Digits with at most one point, as the shortest text: "1,000.50" becomes "1000.5".
std::string plain_number(std::string_view digits, bool negative) {
  std::string whole;
  for (const char c : digits) {
    whole += c == ',' ? "" : std::string(1, c);
  }
  const size_t point = std::min(whole.find('.'), whole.size());
  std::string fraction = whole.substr(std::min(point + 1, whole.size()));
  whole.resize(point);
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  fraction.resize(fraction.find_last_not_of('0') + 1);
  whole = whole.empty() ? "0" : whole;
  const std::string number = fraction.empty() ? whole : whole + "." + fraction;
  return (negative && number != "0" ? "-" : "") + number;
}

/// The first number in a text from `begin` on, and where it ends. A point or comma belongs to it
/// when a digit follows.
std::optional<std::string> next_number(std::string_view text, size_t& begin) {
  const auto found =
      std::find_if(text.begin() + static_cast<int64_t>(begin), text.end(), is_digit<char>);
  if (found == text.end()) {
    return std::nullopt;
  }
  const auto first = static_cast<size_t>(found - text.begin());
  size_t end = first;
  bool point = false;
  while (end < text.size()) {
    const bool inner = end + 1 < text.size() && is_digit(text[end + 1]);
    if (!is_digit(text[end]) && !(inner && (text[end] == ',' || (text[end] == '.' && !point)))) {
      break;
    }
    point = point || text[end] == '.';
    ++end;
  }
  size_t sign = first;
  while (sign > begin && (text[sign - 1] == '$' || text[sign - 1] == '.')) {
    --sign;
  }
  // "5-3" ends with 3, but "is -3" and "$-3" with -3.
  const bool negative =
      sign > begin && text[sign - 1] == '-' && (sign < 2 || !is_digit(text[sign - 2]));
  const bool decimal = first > begin && text[first - 1] == '.' && !point;
  begin = end;
  return plain_number(text.substr(decimal ? first - 1 : first, end - first + (decimal ? 1 : 0)),
                      negative);
}

std::optional<std::string> final_number(std::string_view text) {
  const size_t mark = text.find("####");
  size_t begin = mark == std::string_view::npos ? 0 : mark + 4;
  auto last = next_number(text, begin);
  while (last && mark == std::string_view::npos) {
    const auto next = next_number(text, begin);
    if (!next) {
      break;
    }
    last = next;
  }
  return last;
}

bool matches(const std::string& pattern, const std::string& answer) {
  RegexStore store;
  const RegexId regex = parse_regex(store, pattern, true);
  return store.matches(regex, to_code_points(answer));
}

}  // namespace

AnswerKey make_answer_key(const std::string& scorer, const std::string& reference) {
  if (scorer == "number") {
    size_t end = 0;
    if (!next_number(reference, end) ||
        reference.find_first_not_of(" \n\r\t", end) != std::string::npos) {
      throw ConfigError(fmt::format(
          "'reference' must end with its number for the scorer number, not '{}'", reference));
    }
    return {.scorer = Scorer::kNumber, .reference = reference};
  }
  if (scorer == "program") {
    return {.scorer = Scorer::kProgram, .reference = reference};
  }
  if (scorer != "regex") {
    throw ConfigError(fmt::format("'scorer' must be number, regex or program, not '{}'", scorer));
  }
  try {
    (void)matches(reference, "");
  } catch (const GrammarError& error) {
    throw ConfigError(
        fmt::format("'reference' is no regular expression for the scorer regex: {}", error.what()));
  }
  return {.scorer = Scorer::kRegex, .reference = reference};
}

bool is_right(const AnswerKey& key, const std::string& answer) {
  SPECDEC_CHECK(key.scorer != Scorer::kProgram, "a program scores this answer");
  if (key.scorer == Scorer::kRegex) {
    return matches(key.reference, answer);
  }
  const auto number = final_number(answer);
  return number && number == final_number(key.reference);
}

}  // namespace specdec
