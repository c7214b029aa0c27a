// That templates render as with jinja2 is tested in tests/core/chat_test.cpp, by its texts.
#include "core/jinja/template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

JinjaText rendered_with_x(std::string_view source, const JinjaValue& x) {
  return JinjaTemplate(source).render({{"x", x}}, {"pad_token"});
}

/// The bytes of the text that came with `x`; others as dots.
std::string bytes_of_turns(const JinjaText& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    bytes += text.written_from(i) > 0 ? '.' : text.bytes()[i];
  }
  return bytes;
}

TEST(JinjaTemplateTest, EachByteIsTheTemplatesOrTheTurns) {
  const std::pair<const char*, const char*> cases[] = {
      {"a{{ x }}b", ".  One, two\n."},
      {"{{ '<' + x | trim ~ '>' }}", ".One, two."},
      {"{{ x.split(',')[-1].strip() + x[2:5] }}", "twoOne"},
      {"{{ x | upper | replace('TWO', '2') }}", "  ONE, .\n"},
      {"{{ [x, 'z'] | join('-') }}", "  One, two\n.."},
      {"{% set y %}{{ x }}!{% endset %}{{ y[::-1] }}", ".\nowt ,enO  "},
      {"{{ {'k': x} | tojson }}", ".......  One, two\\n.."},
      {"{% macro f(t) %}({{ t }}){% endmacro %}{{ f(x) }}", ".  One, two\n."},
      {"{% for c in x %}{{ c }}.{% endfor %}", " . .O.n.e.,. .t.w.o.\n."}};
  for (const auto& [source, expected] : cases) {
    EXPECT_EQ(bytes_of_turns(rendered_with_x(source, JinjaText::of_turn("  One, two\n"))), expected)
        << source;
  }
}

TEST(JinjaTemplateTest, WhatIsNotSupportedIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{% include 'x' %}", "line 2: the tag {% include %} is not supported."},
      {"{{ x | dictsort }}", "line 1: the filter dictsort is not supported."},
      {"{{ x is callable }}", "the test callable is not supported."},
      {"{{ x.casefold() }}", "the method casefold() of texts is not supported."},
      {"{{ [1].append(2) }}", "the method append() of lists is not supported."},
      {"{{ pad_token }}", "the name pad_token is not supported."},
      {"{{ cycler('a') }}", "the name cycler is not supported."},
      {"{{ 1 < 2 < 3 }}", "a chain of comparisons is not supported."},
      {"{{ 3 / 2 }}", "the operator / is not supported."},
      {"{{ 1.5 }}", "the number that begins with 1 is not supported."},
      {"{{ f(*x) }}", "the argument * is not supported."},
      {"{{ [x] }}", "writing a list as text is not supported."},
      {"{{ x | join(sep='') }}", "join() with these arguments is not supported."},
      {"{{ '\u00e9' | upper }}", "the case of letters outside ASCII"},
      {"{{ strftime_now('%d') }}", "writes today's date (strftime_now), so results would depend"}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(
        error_message<Error>([source = source] { rendered_with_x(source, jinja_text("")); }),
        AllOf(StartsWith("line "), HasSubstr(expected)))
        << source;
  }
}

TEST(JinjaTemplateTest, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% if x %}\n\n", "line 2: the tag endif is missing."},
      {"{{ x", "a tag has no end (}})."},
      {"{# x", "a comment has no end (#})."},
      {"{{ 'x }}", "a text has no end."},
      {"{{ (x] }}", "the bracket ] closes none."},
      {"{{ x x }}", "'}}' is needed where 'x' stands."},
      {"{{ }}", "an expression is needed where '}}' stands."},
      {"{{ y.z }}", "it reads z of 'y', which is undefined."},
      {"{{ 1 + x }}", "an integer + a text is not supported."},
      {"{% set x.y = 1 %}", "it sets x.y, but x is no namespace."},
      {"\n{{ raise_exception('no ' ~ 1) }}", "line 2: it refuses the chat: \"no 1\"."}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(
        error_message<Error>([source = source] { rendered_with_x(source, jinja_text("")); }),
        HasSubstr(expected))
        << source;
  }
}

TEST(JinjaTemplateTest, ABranchThatIsNotTakenMayHoldAnything) {
  EXPECT_EQ(
      rendered_with_x("{% if x %}{{ x | groupby('a') }}{{ 1 / 0 }}{% endif %}b", jinja_text(""))
          .bytes(),
      "b");
}

TEST(JinjaTemplateTest, NoTemplateExhaustsStackTimeOrMemory) {
  const auto repeated = [](const std::string& part, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) {
      all += part;
    }
    return all;
  };
  const std::pair<std::string, const char*> cases[] = {
      {"{{ " + repeated("(", 10000) + "x" + repeated(")", 10000) + " }}", "nested too deeply"},
      {"{{ x" + repeated(" ~ x", 10000) + " }}", "nested too deeply"},
      {"{{ x" + repeated(".y", 10000) + " }}", "nested too deeply"},
      {repeated("{% if x %}", 10000), "nested too deeply"},
      {"{% if x %}" + repeated("{% elif x %}", 10000), "nested too deeply"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros call one another"},
      {"{% set n = namespace(t='x') %}{% for i in range(40) %}{% set n.t = n.t ~ n.t %}{% endfor "
       "%}",
       "a text of more than"},
      {"{% for i in range(2000) %}{% for j in range(2000) %}{% endfor %}{% endfor %}", "steps"},
      {"{{ range(9999999) }}", "a range is too long"}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(
        error_message<Error>([&source = source] { rendered_with_x(source, jinja_text("")); }),
        HasSubstr(expected))
        << source.substr(0, 60);
  }
}

}  // namespace
}  // namespace specdec
