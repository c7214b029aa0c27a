// The groups that RegexSyntaxParser reads.
#include <algorithm>

#include "core/error.h"
#include "grammar/regex/regex_syntax.h"
#include "grammar/regex/regex_unicode.h"

namespace specdec {
namespace {

constexpr int kMaxGroupDepth = 500;

bool is_group_name(std::u32string_view name) {
  static const CodePoints kOthers({{'$', '$'}, {'_', '_'}});
  static const CodePoints kFirst = unicode_property("ID_Start")->unite(kOthers);
  static const CodePoints kNext = unicode_property("ID_Continue")->unite(kOthers);
  return kFirst.contains(name[0]) &&
         std::ranges::all_of(name, [&](char32_t c) { return kNext.contains(c); });
}

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
  const size_t begin = position_;
  while (!at_end() && peek() != '>' && peek() != ')') {
    ++position_;
  }
  if (position_ == begin || !accept(U">")) {
    syntax_.fail(start, "the group's name is not closed; write '(?<name>...)'");
  }
  const std::u32string_view name = text_.substr(begin, position_ - begin - 1);
  if (dialect_ != RegexDialect::kEcma && !is_group_name(name)) {
    syntax_.fail(begin, fmt::format("'{}' is no name for a group; write letters, digits and '_', "
                                    "and no digit first",
                                    to_utf8(name)));
  }
  if (!open_names_.insert(name).second) {
    if (dialect_ == RegexDialect::kEcmaStrict) {
      syntax_.fail(begin, fmt::format("two groups are named '{}'; rename one, or write '(?:...)'",
                                      to_utf8(name)));
    }
    return;
  }
  names_.push_back(name);
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
