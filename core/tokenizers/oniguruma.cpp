#include "core/tokenizers/oniguruma.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include "core/ascii.h"
#include "core/error.h"
#include "core/formats/utf8.h"
#include "core/tokenizers/character_set.h"

namespace specdec {
namespace {

constexpr int kMaxClasses = 20;  // in one another

class OnigurumaReader {
 public:
  explicit OnigurumaReader(std::string_view pattern) : pattern_(pattern) {}

  std::string translated() {
    alternatives(false);
    if (!rest().empty()) {
      fail(")", "closes no group");
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view construct,
                         std::string_view why = "is not supported") const {
    throw Error(fmt::format("{} at byte {} {}", construct, at_, why));
  }

  std::string_view rest() const { return pattern_.substr(at_); }
  bool skip(std::string_view text) {
    const bool found = rest().starts_with(text);
    at_ += found ? text.size() : 0;
    return found;
  }
  std::string_view character() const {
    if (rest().empty()) {
      fail("the end", "comes too early");
    }
    return rest().substr(0, scan_utf8(rest()).bytes);
  }

  /// Reads alternatives up to the end of the group, or of the expression.
  void alternatives(bool ignores_case) {
    if (++depth_ > 100) {
      fail("a group", "is nested too deeply");
    }
    bool begins = true;
    previous_ = 0;
    while (!rest().empty() && rest()[0] != ')') {
      const bool options = begins && skip("(?i)");
      ignores_case = ignores_case || options;
      out_ += options ? "(?i)" : "";
      if (!options) {
        one(ignores_case);
      }
      begins = false;
    }
    --depth_;
  }

  void one(bool ignores_case) {
    const char c = rest()[0];
    const char before = std::exchange(previous_, '\0');
    const size_t begin = out_.size();
    const bool repeats = std::string_view("*+?{").find(c) != std::string_view::npos;
    if (c == '(') {
      group(ignores_case);
    } else if (c == '[') {
      ++at_;
      out_ += set(ignores_case).pattern();
    } else if (c == '\\') {
      escape(ignores_case);
    } else if (c == '^' || c == '$') {  // of lines
      out_ += fmt::format("(?m:{})", c);
      ++at_;
    } else if (c == '{') {
      interval();
    } else if (std::string_view("|.*+?").find(c) != std::string_view::npos) {
      out_ += c;
      ++at_;
    } else {
      const std::string_view character = this->character();
      check_case(character, before, ignores_case);
      out_ += pcre2_literal(character);
      at_ += character.size();
    }
    atom_ = repeats ? atom_ : begin;
  }

  /// Refuses letters that Oniguruma takes for several where case is ignored: "ß" for "ss".
  void check_case(std::string_view character, char before, bool ignores_case) {
    if (!ignores_case) {
      return;
    }
    const auto letter = static_cast<char>(std::tolower(static_cast<unsigned char>(character[0])));
    const std::string pair = {before, letter};
    if (static_cast<unsigned char>(character[0]) >= 0x80 || pair == "ss" || pair == "ff" ||
        pair == "fi" || pair == "fl" || pair == "st") {
      fail(fmt::format("'{}' without case", character));
    }
    previous_ = letter;
  }

  void group(bool ignores_case) {
    static constexpr std::string_view kKinds[] = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
    const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                    [&](std::string_view one) { return rest().starts_with(one); });
    std::string_view begin = "(?:";
    if (kind != std::end(kKinds)) {
      begin = *kind;
      at_ += begin.size();
    } else if (skip("(?m:")) {
      begin = "(?s:";
    } else if (rest().starts_with("(?<") && rest().size() > 3 && rest().find('>') < 40) {
      at_ += rest().find('>') + 1;  // a name, which nothing here refers to
    } else if (rest().starts_with("(?") || rest().starts_with("(*")) {
      fail(fmt::format("the group {}", rest().substr(0, 4)));
    } else {
      ++at_;
    }
    out_ += begin;
    alternatives(ignores_case || begin == "(?i:");
    if (!skip(")")) {
      fail("the end", "comes before the ) of a group");
    }
    out_ += ')';
    previous_ = 0;
  }

  /// {2}, {2,}, {,3}, {2,3}; other braces are text.
  void interval() {
    const size_t end = rest().find('}');
    const std::string_view inside = rest().substr(1, end == std::string_view::npos ? 0 : end - 1);
    const size_t comma = inside.find(',');
    const auto is_number = [](std::string_view text) {
      return std::all_of(text.begin(), text.end(), is_digit<char>);
    };
    const std::string_view least = inside.substr(0, comma);
    const std::string_view most =
        comma == std::string_view::npos ? least : inside.substr(comma + 1);
    if (inside.empty() || inside == "," || !is_number(least) || !is_number(most)) {
      out_ += R"(\{)";
      ++at_;
      return;
    }
    const std::string_view behind = rest().substr(end + 1);
    const bool fixed = comma == std::string_view::npos;
    const auto value = [](std::string_view text) {
      return text.empty() || text.size() > 5 ? -1 : std::stoi(std::string(text));
    };
    if ((fixed && behind.starts_with('?')) || (!most.empty() && value(least) > value(most))) {
      fail(fmt::format("the repetition {}", rest().substr(0, end + 2)));
    }
    if (behind.starts_with('+')) {  // repeats the repetition, and is not possessive
      out_.insert(atom_, "(?:");
    }
    out_ += fixed ? fmt::format("{{{}}}", least)
                  : fmt::format("{{{},{}}}", least.empty() ? "0" : least, most);
    out_ += behind.starts_with('+') ? ")" : "";
    at_ += end + 1;
  }

  /// Outside of a class.
  void escape(bool ignores_case) {
    static const std::string word =
        fmt::format("[{}{}]", *find_posix_class("word"), kWordsOutsideClasses);
    static const std::map<char, std::string> anchors = {
        {'A', R"(\A)"},
        {'z', R"(\z)"},
        {'Z', R"(\Z)"},
        {'b', fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)},
        {'B', fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word)},
        {'R', R"((?>\r\n|[\n-\r\x{85}\x{2028}\x{2029}]))"},
        {'N', R"([^\n])"},
        {'O', "(?s:.)"}};
    const char letter = rest().size() > 1 ? rest()[1] : '\0';
    const auto anchor = anchors.find(letter);
    if (anchor != anchors.end()) {
      out_ += anchor->second;
      at_ += 2;
      return;
    }
    CharacterSet escaped;
    if (escaped_set(ignores_case, escaped)) {
      const std::string& words = *find_posix_class("word");
      std::string set = escaped.others.empty() ? escaped.pattern() : escaped.others.front();
      const size_t at = set.find(words);
      out_ += at == std::string::npos ? set : set.insert(at + words.size(), kWordsOutsideClasses);
      return;
    }
    const char before = previous_;
    const std::string character = escaped_character(ignores_case);
    if (ignores_case && !character.starts_with('\\')) {
      check_case(character, before, true);
    }
    out_ += character;
  }

  /// An escape that stands for many characters: added to a set.
  bool escaped_set(bool ignores_case, CharacterSet& to) {
    static const std::map<char, const char*> names = {
        {'s', "space"}, {'w', "word"}, {'h', "xdigit"}, {'d', "digit"}};
    if (!rest().starts_with('\\') || rest().size() < 2) {
      return false;
    }
    const char letter = rest()[1];
    const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    const auto name = names.find(lower);
    if (name == names.end() && lower != 'p') {
      return false;
    }
    check_set_case(ignores_case);
    if (name == names.end()) {
      property(to);
    } else {
      add(*find_posix_class(name->second), lower != letter, to);
      at_ += 2;
    }
    return true;
  }

  /// Refuses a property where case is ignored, since its letters may be several: "ß" is of \p{L}.
  void check_set_case(bool ignores_case) const {
    if (ignores_case) {
      fail(fmt::format("{} without case", rest().substr(0, 2)));
    }
  }

  static void add(const std::string& inside, bool negated, CharacterSet& to) {
    if (negated) {
      to.others.push_back(fmt::format("[^{}]", inside));
    } else {
      to.inside += inside;
    }
  }

  /// \p{Name}, \P{Name}, \p{^Name}
  void property(CharacterSet& to) {
    const size_t end = rest().find('}');
    if (rest().size() < 3 || rest()[2] != '{' || end == std::string_view::npos) {
      fail(rest().substr(0, 3));
    }
    std::string_view given = rest().substr(3, end - 3);
    const bool inverted = given.starts_with('^');
    given.remove_prefix(inverted ? 1 : 0);
    std::string name;
    for (const char c : given) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (c != '_' && c != ' ' && c != '-') {
        fail(fmt::format(R"(\p{{{}}})", given));
      }
    }
    const bool negated = inverted != (rest()[1] == 'P');
    const std::string* inside = find_posix_class(name);
    const auto pcre2_name = pcre2_property(name, given);
    if (inside != nullptr && name != "punct") {
      add(*inside, negated, to);
    } else if (!pcre2_name) {
      fail(fmt::format(R"(\p{{{}}})", given));
    } else {
      to.inside += fmt::format(R"(\{}{{{}}})", negated ? 'P' : 'p', *pcre2_name);
    }
    at_ += end + 1;
  }

  /// An escape that stands for one character, as PCRE2's.
  std::string escaped_character(bool ignores_case) {
    const char letter = rest().size() > 1 ? rest()[1] : '\0';
    const PcreEscape escape = pcre2_escape(rest());
    if (escape.bytes == 0 || (ignores_case && (letter == 'x' || letter == 'u'))) {
      fail(rest().substr(0, letter == 'x' || letter == 'u' ? 4 : 2));
    }
    at_ += escape.bytes;
    return escape.text;
  }

  /// A class, behind its [.
  CharacterSet set(bool ignores_case) {
    if (++classes_ > kMaxClasses) {
      fail("a class", "is nested too deeply");
    }
    const bool negated = skip("^");
    if (rest().starts_with(']')) {
      fail("] at the beginning of a class");
    }
    std::vector<CharacterSet> parts(1);
    while (!skip("]")) {
      if (skip("&&")) {
        parts.emplace_back();
      } else {
        item(ignores_case, parts.back());
      }
    }
    --classes_;
    for (const CharacterSet& part : parts) {
      if (part.inside.empty() && part.others.empty()) {
        fail("&& beside nothing");
      }
    }
    CharacterSet result = std::move(parts.back());
    for (size_t i = parts.size() - 1; i-- > 0;) {
      result = {.inside = "",
                .others = {fmt::format("(?:(?={}){})", parts[i].pattern(), result.pattern())}};
    }
    result.negated = negated;
    return result;
  }

  void item(bool ignores_case, CharacterSet& to) {
    if (skip("[:")) {
      posix_bracket(ignores_case, to);
    } else if (skip("[")) {
      CharacterSet inner = set(ignores_case);
      if (inner.negated || !inner.others.empty()) {
        to.others.push_back(inner.pattern());
      } else {
        to.inside += inner.inside;
      }
    } else if (!escaped_set(ignores_case, to)) {
      range(ignores_case, to);
    } else if (rest().starts_with('-') && !rest().starts_with("-]")) {
      fail("- behind many characters");
    }
  }

  void posix_bracket(bool ignores_case, CharacterSet& to) {
    const bool negated = skip("^");
    const size_t end = rest().find(":]");
    const std::string* known = find_posix_class(rest().substr(0, end));
    if (end == std::string_view::npos || known == nullptr || ignores_case) {
      fail(fmt::format("the POSIX bracket {}", rest().substr(0, end)));
    }
    add(*known, negated, to);
    at_ += end + 2;
  }

  void range(bool ignores_case, CharacterSet& to) {
    const bool first = to.inside.empty() && to.others.empty();
    if (rest().starts_with('-') && !first && !rest().starts_with("-]")) {
      fail("- in the middle of a class");
    }
    to.inside += class_character(ignores_case);
    if (rest().starts_with('-') && rest().size() > 1 && rest()[1] != ']') {
      ++at_;
      if (rest().starts_with('[') || rest().starts_with("&&")) {
        fail("- before another class");
      }
      to.inside += '-';
      to.inside += class_character(ignores_case);
    }
  }

  std::string class_character(bool ignores_case) {
    const std::string_view character = this->character();
    if (ignores_case && static_cast<unsigned char>(character[0]) >= 0x80) {
      fail(fmt::format("'{}' without case", character));
    }
    if (character == "\\") {
      if (rest().starts_with("\\b")) {
        at_ += 2;
        return "\\x{8}";
      }
      return escaped_character(ignores_case);
    }
    at_ += character.size();
    return pcre2_literal(character);
  }

  std::string_view pattern_;
  size_t at_ = 0;
  int depth_ = 0;
  int classes_ = 0;
  size_t atom_ = 0;    // in out_: where what a repetition repeats begins
  char previous_ = 0;  // the letter before, where case is ignored
  std::string out_;
};

}  // namespace

std::string pcre2_of_oniguruma(std::string_view pattern) {
  return OnigurumaReader(pattern).translated();
}

}  // namespace specdec
