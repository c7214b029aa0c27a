#include "core/tokenizers/character_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "core/formats/utf8.h"

namespace specdec {
namespace {

/// Unicode's White_Space. PCRE2's own \s also holds U+180E, which is none since Unicode 6.3.
constexpr const char* kUnicodeSpaces =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

constexpr std::string_view kCategories[] = {
    "c",  "cc", "cf", "cn", "co", "cs", "l",  "ll", "lm", "lo", "lt", "lu", "m",
    "mc", "me", "mn", "n",  "nd", "nl", "no", "p",  "pc", "pd", "pe", "pf", "pi",
    "po", "ps", "s",  "sc", "sk", "sm", "so", "z",  "zl", "zp", "zs"};

/// \x{20AC}, \x41, \u20AC
PcreEscape coded_escape(std::string_view text) {
  const bool braces = text.starts_with("\\x{");
  const size_t begin = braces ? 3 : 2;
  const size_t end = braces ? text.find('}') : begin + (text[1] == 'x' ? 2 : 4);
  const std::string_view digits =
      end > text.size() ? std::string_view() : text.substr(begin, end - begin);
  const bool valid = !digits.empty() && digits.size() <= 6 &&
                     std::all_of(digits.begin(), digits.end(), [](char c) {
                       return std::isxdigit(static_cast<unsigned char>(c)) != 0;
                     });
  if (!valid || (!braces && text[1] == 'x' && digits[0] > '7')) {
    return {};
  }
  return {.text = fmt::format("\\x{{{}}}", digits), .bytes = end + (braces ? 1 : 0)};
}

}  // namespace

std::string CharacterSet::pattern() const {
  if (others.empty()) {
    return fmt::format("[{}{}]", negated ? "^" : "", inside);
  }
  std::string either = inside.empty() ? "" : fmt::format("[{}]", inside);
  for (const std::string& other : others) {
    either += (either.empty() ? "" : "|") + other;
  }
  return negated ? fmt::format("(?:(?!{})(?s:.))", either) : fmt::format("(?:{})", either);
}

const std::string* find_posix_class(std::string_view name) {
  static const std::map<std::string, std::string, std::less<>> all = {
      {"alnum", R"(\p{Alphabetic}\p{Nd})"},
      {"alpha", R"(\p{Alphabetic})"},
      {"ascii", R"(\x00-\x7F)"},
      {"blank", R"(\p{Zs}\t)"},
      {"cntrl", R"(\p{Cc})"},
      {"digit", R"(\p{Nd})"},
      {"lower", R"(\p{Lowercase})"},
      {"punct", R"(\p{P}\p{S})"},
      {"space", kUnicodeSpaces},
      {"upper", R"(\p{Uppercase})"},
      {"word", R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})"},
      {"xdigit", "0-9a-fA-F"}};
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

std::optional<std::string> pcre2_property(std::string_view name, std::string_view given) {
  static const std::map<std::string, std::string, std::less<>> others = {
      {"any", "Any"},
      {"alphabetic", "Alphabetic"},
      {"uppercase", "Uppercase"},
      {"emoji", "Emoji"},
      {"lowercase", "Lowercase"},
      {"letter", "L"},
      {"mark", "M"},
      {"number", "N"},
      {"punct", "P"},
      {"punctuation", "P"},
      {"separator", "Z"},
      {"symbol", "S"}};
  if (std::find(std::begin(kCategories), std::end(kCategories), name) != std::end(kCategories)) {
    return std::string(given);
  }
  const auto other = others.find(name);
  if (other != others.end()) {
    return other->second;
  }
  if (name.size() < 3 || name.starts_with("in")) {  // In_...: a block
    return std::nullopt;
  }
  return fmt::format("sc:{}", given);  // a script: alone, it would stand for its extensions too
}

std::string pcre2_literal(std::string_view character) {
  const auto c = static_cast<unsigned char>(character[0]);
  const bool plain = c >= 0x80 || std::isalnum(c) != 0;
  return plain ? std::string(character) : fmt::format("\\x{{{:X}}}", c);
}

PcreEscape pcre2_escape(std::string_view text) {
  static const std::map<char, int> codes = {{'t', '\t'}, {'n', '\n'}, {'r', '\r'}, {'f', '\f'},
                                            {'v', '\v'}, {'a', '\a'}, {'e', 0x1B}};
  if (text.size() < 2) {
    return {};
  }
  const auto code = codes.find(text[1]);
  if (code != codes.end()) {
    return {.text = fmt::format("\\x{{{:X}}}", code->second), .bytes = 2};
  }
  if (text[1] == 'x' || text[1] == 'u') {
    return coded_escape(text);
  }
  if (std::isalnum(static_cast<unsigned char>(text[1])) != 0) {
    return {};
  }
  const std::string_view character = text.substr(1, scan_utf8(text.substr(1)).bytes);
  return {.text = pcre2_literal(character), .bytes = 1 + character.size()};
}

}  // namespace specdec
