#include "grammar/regex/regex_format.h"

#include <string>

#include "core/error.h"
#include "grammar/regex/string_format_names.h"

namespace specdec {
namespace {

constexpr int kMaxGroups = 8;  ///< one in another

/// Upper and lower case of hexadecimal digits from `first` on.
std::string hex_digits_from(int first) {
  std::string set = "[";
  for (int digit = first; digit < 16; ++digit) {
    set += fmt::format("{:x}{:X}", digit, digit);
  }
  return set + "]";
}

std::string hex_digit(int digit) { return fmt::format("[{:x}{:X}]", digit, digit); }

/// Two escapes of `digits` digits, the first number smaller: told apart by one of the first two
/// digits that are not zero at the beginning of both.
std::string hex_range(const std::string& escape, int digits) {
  const auto range = [&](const std::string& before, int rest) {
    std::string all;
    for (int digit = 0; digit < 15; ++digit) {
      const std::string tail = fmt::format("[0-9A-Fa-f]{{{}}}", rest);
      all += (all.empty() ? "" : "|") + escape + before + hex_digit(digit) + tail + "-" + escape +
             before + hex_digits_from(digit + 1) + tail;
    }
    return all;
  };
  std::string all;
  std::string zeros;
  for (int at = 0; at < digits; ++at, zeros += "0") {
    all += at == 0 ? "" : "|";
    all += range(zeros, digits - at - 1);
    for (int same = 1; same < 16 && at + 1 < digits; ++same) {
      all += '|';
      all += range(zeros + hex_digit(same), digits - at - 2);
    }
  }
  return all;
}

/// x-y for characters written as themselves.
RegexId plain_ranges(RegexStore& store) {
  std::vector<RegexId> all;
  const CodePoints special({{'[', ']'}, {'-', '-'}});
  for (char32_t first = ' '; first <= '~'; ++first) {
    if (!special.contains(first)) {
      const CodePoints last({{first, '~'}, {0x80, CodePoints::kLast}});
      all.push_back(store.concat(store.literal(std::u32string{first, U'-'}),
                                 store.one_of(last.intersect(special.complement()))));
    }
  }
  return store.any_of(all);
}

const char* const kClasses =
    "[pP]\\{(?:(?:General_Category=|gc=)?(?:L|Letter|Lu|Uppercase_Letter|Ll|Lowercase_Letter|Lt|"
    "Titlecase_Letter|LC|Cased_Letter|Lm|Modifier_Letter|Lo|Other_Letter|M|Mark|Mn|"
    "Nonspacing_Mark|Mc|Spacing_Mark|Me|Enclosing_Mark|N|Number|Nd|Decimal_Number|Nl|"
    "Letter_Number|No|Other_Number|P|Punctuation|Pc|Connector_Punctuation|Pd|Dash_Punctuation|Ps|"
    "Open_Punctuation|Pe|Close_Punctuation|Pi|Initial_Punctuation|Pf|Final_Punctuation|Po|"
    "Other_Punctuation|S|Symbol|Sm|Math_Symbol|Sc|Currency_Symbol|Sk|Modifier_Symbol|So|"
    "Other_Symbol|Z|Separator|Zs|Space_Separator|Zl|Line_Separator|Zp|Paragraph_Separator|C|"
    "Other|Cc|Control|Cf|Format|Cs|Surrogate|Co|Private_Use|Cn|Unassigned)|Any|ASCII|Assigned|"
    "Alphabetic|Alpha|Lowercase|Lower|Uppercase|Upper|White_Space|Emoji|ID_Start|ID_Continue|"
    "(?:Script|sc|Script_Extensions|scx)=(?:Latin|Latn|Greek|Grek|Cyrillic|Cyrl|Arabic|Arab|"
    "Hebrew|Hebr|Han|Hani|Hiragana|Hira|Katakana|Kana|Hangul|Hang|Thai|Devanagari|Deva))\\}";

/// One character: \n, \., \x41, \cJ, \u{1F600}, ...
const char* const kCharacterEscape =
    "\\\\(?:[tnvfr^$\\\\.*+?()\\[\\]{}|/]|c[A-Za-z]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|"
    "u\\{0*(?:10|[0-9A-Fa-f])?[0-9A-Fa-f]{1,4}\\})";

/// {n}, {n,} and {n,m}
std::string count_texts() {
  std::string all = "0*(?:";
  for (int min = 0; min < 100; ++min) {
    std::string more;  // the numbers from `min` to 99
    for (int max = min; max < 100 && max < min / 10 * 10 + 10; ++max) {
      more += more.empty() ? "" : "|";
      more += std::to_string(max);
    }
    if (min < 90) {
      more += fmt::format("|[{}-9][0-9]", min / 10 + 1);
    }
    all += fmt::format("{}{},0*(?:{}|[1-9][0-9]{{2,}})", min == 0 ? "" : "|", min, more);
  }
  return fmt::format("\\{{(?:[0-9]+,?|{}))\\}}", all);
}

RegexId char_class(RegexStore& store) {
  const std::string escapes = "\\\\(?:[dDsSwWb-]|" + std::string(kClasses) + ")";
  const RegexId single =
      format_pattern(store, "[^\\]\\[\\\\-]|\\[|" + std::string(kCharacterEscape) + "|" + escapes);
  const RegexId ranges = store.any_of(
      plain_ranges(store),
      format_pattern(store, fmt::format("{}|{}", hex_range("\\\\x", 2), hex_range("\\\\u", 4))));
  const RegexId dash = format_pattern(store, "-?");
  const RegexId members = store.repeat(store.any_of(single, ranges), 0, std::nullopt);
  const RegexId parts[] = {format_pattern(store, "\\[\\^?"), dash, members, dash,
                           store.literal(U"]")};
  return store.concat(parts);
}

}  // namespace

RegexId regex_format(RegexStore& store) {
  const RegexId assertion = format_pattern(store, "[\\^$]|\\\\[bB]");
  const RegexId quantifier =
      format_pattern(store, fmt::format("(?:(?:[*+?]|{})(?:\\?)?)?", count_texts()));
  const RegexId simple = store.any_of(
      format_pattern(store, "[^\\^$\\\\.*+?()\\[\\]{}|]|\\.|" + std::string(kCharacterEscape) +
                                "|\\\\(?:[dDsSwW]|" + kClasses + ")"),
      char_class(store));
  const RegexId open = format_pattern(store, "\\((?:\\?:)?");
  const RegexId look = format_pattern(store, "\\(\\?<?[=!]");
  const RegexId close = store.literal(U")");
  RegexId all = store.repeat(
      store.any_of(std::vector{store.concat(simple, quantifier), assertion, store.literal(U"|")}),
      0, std::nullopt);
  for (int depth = 0; depth < kMaxGroups; ++depth) {
    const RegexId group = store.concat(std::vector{open, all, close});
    const RegexId around = store.concat(std::vector{look, all, close});
    all =
        store.repeat(store.any_of(std::vector{store.concat(store.any_of(simple, group), quantifier),
                                              around, assertion, store.literal(U"|")}),
                     0, std::nullopt);
  }
  return all;
}

}  // namespace specdec
