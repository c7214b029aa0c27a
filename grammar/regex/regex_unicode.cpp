#include "grammar/regex/regex_unicode.h"

#include <unicode/uniset.h>

#include <algorithm>
#include <string>

#include "core/ascii.h"

namespace specdec {
namespace {

CodePoints to_points(const icu::UnicodeSet& set) {
  std::vector<CodePoints::Range> ranges;
  for (int32_t i = 0; i < set.getRangeCount(); ++i) {
    ranges.push_back(
        {static_cast<char32_t>(set.getRangeStart(i)), static_cast<char32_t>(set.getRangeEnd(i))});
  }
  return CodePoints(ranges);
}

bool is_name_character(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '='; }

}  // namespace

std::optional<CodePoints> unicode_property(std::string_view name) {
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_name_character)) {
    return std::nullopt;
  }
  UErrorCode error = U_ZERO_ERROR;
  const std::string pattern = "[:" + std::string(name) + ":]";
  const icu::UnicodeSet set(icu::UnicodeString::fromUTF8(pattern), error);
  if (U_FAILURE(error) || set.hasStrings()) {
    return std::nullopt;
  }
  return to_points(set);
}

CodePoints close_over_case(const CodePoints& points) {
  icu::UnicodeSet set;
  for (const CodePoints::Range& range : points.ranges()) {
    set.add(static_cast<UChar32>(range.first), static_cast<UChar32>(range.last));
  }
  set.closeOver(USET_CASE_INSENSITIVE);
  return to_points(set);
}

CodePoints close_over_python_case(const CodePoints& points) {
  const CodePoints closed = close_over_case(points);
  const CodePoints letters({{'I', 'I'}, {'i', 'i'}, {0x130, 0x131}});
  return points.intersect(letters).empty() ? closed : closed.unite(letters);
}

CodePoints close_over_ascii_case(const CodePoints& points) {
  std::vector<CodePoints::Range> ranges = points.ranges();
  for (char32_t upper = 'A'; upper <= 'Z'; ++upper) {
    const char32_t lower = upper | 0x20;
    if (points.contains(upper) || points.contains(lower)) {
      ranges.insert(ranges.end(), {{upper, upper}, {lower, lower}});
    }
  }
  return CodePoints(ranges);
}

}  // namespace specdec
