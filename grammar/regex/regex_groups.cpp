// The groups that RegexSyntaxParser reads.
#include "core/error.h"
#include "grammar/regex/regex_syntax.h"

namespace specdec {
namespace {

constexpr int kMaxGroupDepth = 500;

/// How groups begin that are no regular languages, or whose rules of matching decide.
struct RefusedGroup {
  std::u32string_view begin;
  const char* message;
};
constexpr RefusedGroup kRefusedGroups[] = {
    {U"?>", "atomic groups '(?>' are not supported; use '(?:'"},
    {U"?P=", "back-references '(?P=' are not supported: such languages are not regular"},
    {U"?P>", "recursion '(?P>' is not supported: such languages are not regular"},
    {U"?&", "recursion '(?&' is not supported: such languages are not regular"},
    {U"?R", "recursion '(?R' is not supported: such languages are not regular"},
    {U"?(", "conditional groups '(?(' are not supported; write both cases as alternatives"},
    {U"?|", "branch resets '(?|' are not supported; use '(?:'"},
    {U"?'", "groups named \"(?'\" are not supported; write '(?<name>...)'"},
    {U"?#", "comments '(?#' are not part of this syntax; leave it out"},
    {U"*", "control verbs '(*' are not supported; write '\\(' for the character"},
};

}  // namespace

uint32_t RegexSyntaxParser::group() {
  const size_t start = position_++;
  if (accept(U"?=") || accept(U"?!")) {
    return look(start, false, text_[position_ - 1] == '!');
  }
  if (accept(U"?<=") || accept(U"?<!")) {
    return look(start, true, text_[position_ - 1] == '!');
  }
  refuse_group(start);
  if (accept(U"?<") || accept(U"?P<")) {
    skip_group_name(start);
  } else if (looking_at(U"?") && !accept(U"?:")) {
    syntax_.fail(start, "this kind of group is not supported; use '(?:'");
  }
  return group_body(Kind::kConcat, start);
}

void RegexSyntaxParser::refuse_group(size_t start) {
  for (const RefusedGroup& refused : kRefusedGroups) {
    if (looking_at(refused.begin)) {
      syntax_.fail(start, refused.message);
    }
  }
  if (is_python() && looking_at(U"?<")) {
    syntax_.fail(start, "groups named '(?<' are not Python's; write '(?P<name>...)'");
  }
}

/// Flags for the rest of a group (`(?i)`, Python's for all and only at the beginning) or for one of
/// its own (`(?i:...)`); nothing when there is something else.
std::optional<uint32_t> RegexSyntaxParser::flag_group(size_t start) {
  if (!looking_at(U"(?")) {
    return std::nullopt;
  }
  size_t end = start + 2;
  while (end < text_.size() && std::u32string_view(U"aiLlmsux-").find(text_[end]) != text_.npos) {
    ++end;
  }
  if (end == start + 2 || end == text_.size() || (text_[end] != ')' && text_[end] != ':')) {
    return std::nullopt;
  }
  if (is_python() && text_[end] == ')' && start != flags_end_) {
    syntax_.fail(start,
                 "flags for the whole pattern stand at its beginning; move them there, or "
                 "write '(?i:...)' for a part");
  }
  if (is_python() && text_[end] == ')' &&
      text_.substr(start, end - start).find(U'-') != text_.npos) {
    syntax_.fail(start, "flags are only turned off for a part; write '(?-i:...)'");
  }
  const Flags before = flags_;
  bool value = true;
  for (const char32_t flag : text_.substr(start + 2, end - start - 2)) {
    if (flag == '-') {
      value = false;
    } else {
      set_flag(flag, value, start);
    }
  }
  position_ = end + 1;
  if (text_[end] == ')') {
    flags_end_ = position_;
    return add({.kind = Kind::kConcat, .position = start});
  }
  const uint32_t body = group_body(Kind::kConcat, start);
  flags_ = before;
  return quantified(body);
}

void RegexSyntaxParser::set_flag(char32_t flag, bool value, size_t start) {
  if (flag == 'i') {
    flags_.ignore_case = value;
  } else if (flag == 's') {
    flags_.dot_all = value;
  } else if (flag == 'm') {
    flags_.lines = value;
  } else if (flag == 'x' && is_python()) {
    flags_.verbose = value;
  } else if (flag == 'a' && is_python() && value) {
    flags_.ascii = true;
  } else if (flag != 'u') {
    syntax_.fail(start, fmt::format("the flag '{}' is not supported; {} are", to_utf8({&flag, 1}),
                                    is_python() ? "a, i, m, s, u and x" : "i, m, s and u"));
  }
}

void RegexSyntaxParser::skip_group_name(size_t start) {
  const size_t name = position_;
  while (!at_end() && peek() != '>' && peek() != ')') {
    ++position_;
  }
  if (position_ == name || !accept(U">")) {
    syntax_.fail(start, "the group's name is not closed; write '(?<name>...)'");
  }
}

uint32_t RegexSyntaxParser::look(size_t start, bool behind, bool negative) {
  const uint32_t body = group_body(Kind::kLook, start);
  return add({.kind = Kind::kLook,
              .negative = negative,
              .behind = behind,
              .position = start,
              .children = {body}});
}

uint32_t RegexSyntaxParser::group_body(Kind kind, size_t start) {
  if (++depth_ > kMaxGroupDepth) {
    syntax_.fail(start,
                 fmt::format("groups are nested more than {} deep; use fewer", kMaxGroupDepth));
  }
  const Flags before = flags_;
  const uint32_t body = alternatives();
  flags_ = before;
  --depth_;
  if (!accept(U")")) {
    syntax_.fail(start, kind == Kind::kLook ? "the look-around is not closed; add ')'"
                                            : "the group is not closed; add ')'");
  }
  return body;
}

}  // namespace specdec
