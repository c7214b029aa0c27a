#include "grammar/cfg/gbnf.h"

#include "core/error.h"
#include "grammar/cfg/context_free_builder.h"
#include "grammar/cfg/earley_automaton.h"

namespace specdec {
namespace {

constexpr std::string_view kNameMarks = "-_";
constexpr std::string_view kEscapes = "\"\\[]-^/'";
constexpr int kMaxRepeats = 8;  ///< of one part, in a row

class GbnfParser {
 public:
  GbnfParser(RegexStore& regexes, GrammarText& text, const RuleParts& parts)
      : regexes_(regexes), text_(text), parts_(parts) {}

  RuleSet parse() {
    for (skip_space(); !text_.at_end(); skip_space()) {
      rule();
    }
    return std::move(rules_);
  }

 private:
  void skip_space() {
    for (; !text_.at_end(); text_.skip(1)) {
      const char c = text_.peek();
      if (c == '#') {
        text_.skip_line();
      } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
        return;
      }
    }
  }

  void rule() {
    const size_t start = text_.position();
    const std::string_view name = text_.take_word(kNameMarks);
    if (name.empty()) {
      text_.fail(fmt::format("expected the name of a rule, found {}", text_.here()));
    }
    skip_space();
    if (!text_.accept("::=")) {
      text_.fail(fmt::format("expected '::=' after '{}', found {}", name, text_.here()));
    }
    const RuleId id = rules_.find(name, start);
    rules_.define(id, alternatives(), start, text_);
    if (!text_.at_end() && !starts_rule()) {
      text_.fail(
          fmt::format("expected another part of the rule '{}', or the next rule ('name ::= "
                      "...'), found {}",
                      name, text_.here()));
    }
  }

  /// Looks ahead for a name with '::=' after it.
  bool starts_rule() {
    const size_t start = text_.position();
    const bool named = !text_.take_word(kNameMarks).empty();
    skip_space();
    const bool found = named && text_.looking_at("::=");
    text_.seek(start);
    return found;
  }

  ExpressionId alternatives() {
    std::vector<ExpressionId> parts;
    skip_space();
    const size_t start = text_.position();
    do {
      parts.push_back(sequence());
    } while (text_.accept("|"));
    return rules_.choice(std::move(parts), {start, end_});
  }

  ExpressionId sequence() {
    skip_space();
    const size_t start = text_.position();
    end_ = start;
    std::vector<ExpressionId> parts;
    while (const auto part = element()) {
      const ExpressionId whole = repeated(*part, start_of_part_);
      parts.push_back(whole);
      end_ = text_.position();
      skip_space();
    }
    return rules_.sequence(std::move(parts), {start, end_});
  }

  std::optional<ExpressionId> element() {
    const size_t start = text_.position();
    start_of_part_ = start;
    const char c = text_.peek();
    if (c == '"') {
      return literal();
    }
    if (c == '[') {
      return char_class();
    }
    if (c == '(') {
      return group();
    }
    if (text_.accept(".")) {
      return rules_.regex(regexes_.one_of(CodePoints::all()), 1, span_from(start));
    }
    if (c == '<') {
      return read_token(rules_, text_, parts_);
    }
    if (c == '!' && text_.peek(1) == '<') {
      text_.fail(
          "'any token but this one' is not supported; write what may come as text, or "
          "name the tokens that may");
    }
    if (starts_rule()) {
      return std::nullopt;
    }
    const std::string_view name = text_.take_word(kNameMarks);
    if (name.empty()) {
      return std::nullopt;
    }
    return rules_.rule(rules_.find(name, start), span_from(start));
  }

  GrammarSpan span_from(size_t start) const { return {start, text_.position()}; }

  ExpressionId group() {
    const size_t start = text_.position();
    text_.open_group();
    const ExpressionId body = alternatives();
    text_.close_group(start, ")");
    start_of_part_ = start;
    return body;
  }

  ExpressionId literal() {
    const size_t start = text_.position();
    std::u32string points = text_.take_quoted(kEscapes);
    return rules_.literal(std::move(points), span_from(start));
  }

  char32_t point() {
    return text_.peek() == '\\' ? text_.take_escape(kEscapes) : text_.take_point();
  }

  ExpressionId char_class() {
    const size_t start = text_.position();
    text_.skip(1);
    const bool negated = text_.accept("^");
    std::vector<CodePoints::Range> ranges;
    while (!text_.accept("]")) {
      if (text_.at_end() || text_.peek() == '\n') {
        text_.fail(start, "the class is not closed; end it with ']'");
      }
      refuse_named_class();
      ranges.push_back(range());
    }
    CodePoints points(ranges);
    points = negated ? points.complement() : points;
    return rules_.regex(regexes_.one_of(points), 1, span_from(start));
  }

  /// [:alpha:] within a class, as POSIX has it, [.x.] and [=x=].
  void refuse_named_class() {
    const size_t start = text_.position();
    const std::string_view mark = text_.between(start + 1, start + 2);
    if (text_.peek() != '[' ||
        std::string_view(":.=").find(text_.peek(1)) == std::string_view::npos) {
      return;
    }
    text_.skip(2);
    const bool named = !text_.take_word("-").empty() && text_.accept(mark) && text_.accept("]");
    if (named) {
      text_.fail(start, fmt::format("POSIX classes '{}' are not supported; write the characters, "
                                    "as in [a-zA-Z], or '\\[' for a bracket",
                                    text_.between(start, text_.position())));
    }
    text_.seek(start);
  }

  CodePoints::Range range() {
    const size_t start = text_.position();
    const char32_t first = point();
    if (text_.peek() != '-' || text_.peek(1) == ']') {
      return {first, first};
    }
    text_.skip(1);
    if (text_.at_end()) {
      text_.fail(start, "the class is not closed; end it with ']'");
    }
    const char32_t last = point();
    if (last < first) {
      text_.fail(start, "the range ends before it begins; swap its ends");
    }
    return {first, last};
  }

  /// '*', '+', '?' and '{n,m}' after a part, also several of them.
  ExpressionId repeated(ExpressionId part, size_t start) {
    for (int count = 0;; ++count) {
      if (count > kMaxRepeats) {
        text_.fail("there are too many repetitions in a row; write one");
      }
      const size_t after_part = text_.position();
      skip_space();
      uint64_t min = 0;
      uint64_t max = RuleSet::kUnbounded;
      if (text_.accept("+")) {
        min = 1;
      } else if (text_.accept("?")) {
        max = 1;
      } else if (text_.accept("{")) {
        bounds(min, max);
      } else if (!text_.accept("*")) {
        text_.seek(after_part);
        return part;
      }
      part = rules_.repeat(part, min, max, span_from(start));
    }
  }

  void bounds(uint64_t& min, uint64_t& max) {
    const size_t start = text_.position() - 1;
    skip_space();
    min = text_.peek() == ',' ? 0 : text_.take_number();
    max = min;
    skip_space();
    if (text_.accept(",")) {
      skip_space();
      max = text_.peek() == '}' ? RuleSet::kUnbounded : text_.take_number();
      skip_space();
    }
    if (!text_.accept("}")) {
      text_.fail(
          fmt::format("expected '}}' after the counts of a repetition, found {}", text_.here()));
    }
    if (max < min) {
      text_.fail(start, "the repetition's larger count stands first; swap the two");
    }
  }

  RegexStore& regexes_;
  GrammarText& text_;
  const RuleParts& parts_;
  RuleSet rules_;
  size_t end_ = 0;  ///< behind the last part that was read
  size_t start_of_part_ = 0;
};

}  // namespace

std::unique_ptr<Automaton> make_gbnf_automaton(RegexStore& regexes, std::string_view text,
                                               std::string_view where, const RuleParts& parts) {
  GrammarText reader(text, where, parts.limits);
  const RuleSet rules = GbnfParser(regexes, reader, parts).parse();
  const RuleId root = rules.require(parts.start.empty() ? "root" : parts.start, reader);
  rules.check_defined(reader);
  return std::make_unique<EarleyAutomaton>(
      regexes, make_context_free(regexes, rules, root, reader, parts.limits), parts.limits);
}

}  // namespace specdec
