#include "grammar/cfg/lark_common.h"

#include <array>

namespace specdec {
namespace {

struct Common {
  std::string_view name;
  std::string_view pattern;
};

constexpr std::array kCommon = {
    Common{"DIGIT", "[0-9]"},
    Common{"HEXDIGIT", "[0-9a-fA-F]"},
    Common{"INT", "[0-9]+"},
    Common{"SIGNED_INT", "[+-]?[0-9]+"},
    Common{"DECIMAL", R"([0-9]+\.[0-9]*|\.[0-9]+)"},
    Common{"_EXP", "[eE][+-]?[0-9]+"},
    Common{"FLOAT", R"([0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    Common{"SIGNED_FLOAT",
           R"([+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))"},
    Common{"NUMBER", R"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    Common{"SIGNED_NUMBER", R"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    Common{"_STRING_INNER", ".*?"},
    Common{"_STRING_ESC_INNER", R"(.*?(?<!\\)(\\\\)*?)"},
    Common{"ESCAPED_STRING", R"("(?:[^"\\\n]|\\[^\n])*")"},
    Common{"LCASE_LETTER", "[a-z]"},
    Common{"UCASE_LETTER", "[A-Z]"},
    Common{"LETTER", "[a-zA-Z]"},
    Common{"WORD", "[a-zA-Z]+"},
    Common{"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    Common{"WS_INLINE", R"([ \t]+)"},
    Common{"WS", R"([ \t\f\r\n]+)"},
    Common{"CR", R"(\r)"},
    Common{"LF", R"(\n)"},
    Common{"NEWLINE", R"((?:\r?\n)+)"},
    Common{"SH_COMMENT", R"(#[^\n]*)"},
    Common{"CPP_COMMENT", R"(//[^\n]*)"},
    Common{"C_COMMENT", R"(/\*(?:[^*]|\*+[^*/])*\*+/)"},
    Common{"SQL_COMMENT", R"(--[^\n]*)"},
};

bool is_small(char c) { return c >= 'a' && c <= 'z'; }

bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

}  // namespace

std::optional<bool> is_lark_terminal(std::string_view name) {
  const size_t letter = name.find_first_not_of('_');
  if (letter == std::string_view::npos || !(is_small(name[letter]) || is_capital(name[letter]))) {
    return std::nullopt;
  }
  const bool capital = is_capital(name[letter]);
  for (const char c : name) {
    if (capital ? is_small(c) : is_capital(c)) {
      return std::nullopt;
    }
  }
  return capital;
}

std::optional<std::string_view> lark_common_pattern(std::string_view name) {
  for (const Common& common : kCommon) {
    if (common.name == name) {
      return common.pattern;
    }
  }
  return std::nullopt;
}

std::string lark_common_names() {
  std::string names;
  for (const Common& common : kCommon) {
    names += (names.empty() ? "" : ", ") + std::string(common.name);
  }
  return names;
}

}  // namespace specdec
