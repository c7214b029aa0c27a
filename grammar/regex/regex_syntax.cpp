#include "grammar/regex/regex_syntax.h"

#include <algorithm>

#include "core/ascii.h"
#include "core/error.h"

namespace specdec {
namespace {

constexpr size_t kShown = 80;                      ///< characters of a pattern in a message
constexpr uint64_t kMaxCount = uint64_t{1} << 32;  ///< of a quantifier

CodePoints line_ends(RegexDialect dialect) {
  return dialect == RegexDialect::kPython
             ? CodePoints({{'\n', '\n'}})
             : CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
}

bool is_blank(char32_t c) { return c == ' ' || ('\t' <= c && c <= '\r'); }

}  // namespace

void RegexSyntax::fail(size_t position, const std::string& message) const {
  const bool whole = pattern.size() <= kShown;
  throw GrammarError(fmt::format("pattern '{}{}', character {}: {}",
                                 to_utf8(std::u32string_view(pattern).substr(0, kShown)),
                                 whole ? "" : "...", position + 1, message));
}

RegexSyntaxParser::RegexSyntaxParser(std::string_view pattern, RegexDialect dialect)
    : dialect_(dialect) {
  syntax_.pattern = to_code_points(pattern);
}

RegexSyntax RegexSyntaxParser::parse() {
  text_ = syntax_.pattern;
  syntax_.root = alternatives();
  if (!at_end()) {
    syntax_.fail(position_, "')' closes no group; write '\\)' for the character");
  }
  return std::move(syntax_);
}

bool RegexSyntaxParser::looking_at(std::u32string_view prefix) const {
  return text_.substr(position_).starts_with(prefix);
}

bool RegexSyntaxParser::accept(std::u32string_view prefix) {
  const bool found = looking_at(prefix);
  position_ += found ? prefix.size() : 0;
  return found;
}

/// 0 past the end.
char32_t RegexSyntaxParser::peek(size_t ahead) const {
  return position_ + ahead < text_.size() ? text_[position_ + ahead] : 0;
}

uint32_t RegexSyntaxParser::add(RegexSyntax::Node node) {
  using enum RegexSyntax::Kind;
  node.asserts = node.kind == kStart || node.kind == kEnd || node.kind == kLook ||
                 node.kind == kBoundary || std::ranges::any_of(node.children, [&](uint32_t child) {
                   return syntax_.nodes[child].asserts;
                 });
  syntax_.nodes.push_back(std::move(node));
  return static_cast<uint32_t>(syntax_.nodes.size() - 1);
}

uint32_t RegexSyntaxParser::class_index(const CodePoints& points) {
  syntax_.classes.push_back(points);
  return static_cast<uint32_t>(syntax_.classes.size() - 1);
}

uint32_t RegexSyntaxParser::add_points(const CodePoints& points, size_t position) {
  return add({.kind = Kind::kPoint, .points = class_index(points), .position = position});
}

uint32_t RegexSyntaxParser::alternatives() {
  const size_t start = position_;
  const size_t names = names_.size();
  std::vector<uint32_t> children = {sequence()};
  std::vector<std::u32string_view> earlier;
  while (accept(U"|")) {
    forget_names(names, earlier);
    children.push_back(sequence());
  }
  for (const std::u32string_view name : earlier) {
    if (open_names_.insert(name).second) {
      names_.push_back(name);
    }
  }
  if (children.size() == 1) {
    return children[0];
  }
  return add({.kind = Kind::kOr, .position = start, .children = std::move(children)});
}

/// Other alternatives may have groups of the same names.
void RegexSyntaxParser::forget_names(size_t first, std::vector<std::u32string_view>& forgotten) {
  for (; names_.size() > first; names_.pop_back()) {
    open_names_.erase(names_.back());
    forgotten.push_back(names_.back());
  }
}

uint32_t RegexSyntaxParser::sequence() {
  const size_t start = position_;
  std::vector<uint32_t> children;
  for (skip_ignored(); !at_end() && peek() != '|' && peek() != ')'; skip_ignored()) {
    if (const auto flags = flag_group(position_)) {
      children.push_back(*flags);
    } else {
      children.push_back(quantified(term()));
    }
  }
  if (children.size() == 1) {
    return children[0];
  }
  return add({.kind = Kind::kConcat, .position = start, .children = std::move(children)});
}

/// Python's comments, and white space with the flag `x`.
void RegexSyntaxParser::skip_ignored() {
  while (is_python() && !at_end()) {
    const size_t start = position_;
    if (accept(U"(?#")) {
      position_ = std::min(text_.find(U')', position_), text_.size());
      if (!accept(U")")) {
        syntax_.fail(start, "the comment is not closed; add ')'");
      }
    } else if (flags_.verbose && peek() == '#') {
      position_ = std::min(text_.find(U'\n', position_), text_.size());
    } else if (flags_.verbose && is_blank(peek())) {
      ++position_;
    } else {
      return;
    }
  }
}

uint32_t RegexSyntaxParser::term() {
  const size_t start = position_;
  const char32_t c = peek();
  if (c == '\\') {
    return escape_term();
  }
  if (c == '[') {
    return add_points(bracket_class(), start);
  }
  if (c == '(') {
    return group();
  }
  if (c == '*' || c == '+' || c == '?' || (c == '{' && braces())) {
    syntax_.fail(start, "there is nothing to repeat; write a backslash before the character");
  }
  if (c == '{') {
    refuse_open_count();
  }
  if (c == '^' || c == '$') {
    return anchor();
  }
  ++position_;
  if (c == '.') {
    return add_points(flags_.dot_all ? CodePoints::all() : line_ends(dialect_).complement(), start);
  }
  const auto [known, is_new] = letters_.try_emplace({c, flags_.ignore_case}, 0);
  if (is_new) {
    known->second = class_index(fold(CodePoints({{c, c}})));
  }
  return add({.kind = Kind::kPoint, .points = known->second, .position = start});
}

/// '^' or '$': the text's ends, with the flag `m` those of lines too. Python's '$' also holds
/// before a last line end.
uint32_t RegexSyntaxParser::anchor() {
  const size_t start = position_++;
  const bool behind = text_[start] == '^';
  const uint32_t edge = add({.kind = behind ? Kind::kStart : Kind::kEnd, .position = start});
  if (!flags_.lines && (behind || !is_python())) {
    return edge;
  }
  const uint32_t line_end = add_points(line_ends(dialect_), start);
  if (flags_.lines) {
    return look_for(
        behind, add({.kind = Kind::kOr, .position = start, .children = {edge, line_end}}), start);
  }
  const uint32_t last =
      add({.kind = Kind::kRepeat, .min = 0, .max = 1, .position = start, .children = {line_end}});
  return look_for(false, add({.kind = Kind::kConcat, .position = start, .children = {last, edge}}),
                  start);
}

uint32_t RegexSyntaxParser::look_for(bool behind, uint32_t body, size_t position) {
  return add({.kind = Kind::kLook, .behind = behind, .position = position, .children = {body}});
}

uint32_t RegexSyntaxParser::quantified(uint32_t atom) {
  skip_ignored();
  const size_t start = position_;
  std::pair<uint64_t, uint64_t> counts;
  if (accept(U"*")) {
    counts = {0, RegexSyntax::kUnbounded};
  } else if (accept(U"+")) {
    counts = {1, RegexSyntax::kUnbounded};
  } else if (accept(U"?")) {
    counts = {0, 1};
  } else if (const auto read = braces()) {
    counts = *read;
  } else {
    return atom;
  }
  if (counts.first > counts.second) {
    syntax_.fail(start, "the counts of the repetition are out of order; write the smaller first");
  }
  const bool lazy = accept(U"?");
  if (looking_at(U"+")) {
    syntax_.fail(
        position_,
        fmt::format(
            "possessive quantifiers '{}+' are not supported; leave out the '+' if what follows "
            "cannot begin like what is repeated, or put '(?:' and ')' around the part to "
            "repeat it again",
            to_utf8(text_.substr(start, position_ - start))));
  }
  if (peek() == '*' || peek() == '?') {
    syntax_.fail(position_, "there is nothing to repeat; write a backslash before the character");
  }
  return add({.kind = Kind::kRepeat,
              .lazy = lazy,
              .min = counts.first,
              .max = counts.second,
              .position = start,
              .children = {atom}});
}

/// {n}, {n,} or {n,m}, Python's {,m}; when it is something else nothing is read, and the brace is a
/// character (ECMA-262, annex B).
std::optional<std::pair<uint64_t, uint64_t>> RegexSyntaxParser::braces() {
  const size_t start = position_;
  if (accept(U"{") && (is_digit(peek()) || (is_python() && peek() == ','))) {
    const uint64_t min = is_digit(peek()) ? number() : 0;
    uint64_t max = min;
    if (accept(U",")) {
      max = is_digit(peek()) ? number() : RegexSyntax::kUnbounded;
    }
    if (accept(U"}")) {
      return std::pair(min, max);
    }
  }
  position_ = start;
  return std::nullopt;
}

uint64_t RegexSyntaxParser::number() {
  const size_t start = position_;
  uint64_t value = 0;
  for (; is_digit(peek()); ++position_) {
    value = value * 10 + (peek() - '0');
    if (value > kMaxCount) {
      syntax_.fail(start, fmt::format("the count is larger than {}; leave it open", kMaxCount));
    }
  }
  return value;
}

}  // namespace specdec
