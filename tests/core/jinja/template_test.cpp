// Errors and limits of templates; tests/core/chat_test.cpp tests by its texts that they render as
// with jinja2.
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

/// What is said of a template that is refused, with `x` empty.
std::string complaint(const std::string& source) {
  return error_message<Error>([&] { rendered_with_x(source, jinja_text("")); });
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
      {"{% for c in x %}{{ c }}.{% endfor %}", " . .O.n.e.,. .t.w.o.\n."},
      {"{% for k in {x: 1} %}{{ k }}{% endfor %}", "  One, two\n"},
      {"{% for k, v in {x: 1}.items() %}{{ k }}{{ v }}{% endfor %}", "  One, two\n."},
      {"{{ {x: 1}.keys() | join }}{{ {x: 1} | first }}", "  One, two\n  One, two\n"},
      {"{{ {x: 1} | tojson }}", "..  One, two\\n....."},
      {"{% set y = x %}{{ y + '.' }}{{ x }}", "  One, two\n.  One, two\n"}};
  for (const auto& [source, expected] : cases) {
    EXPECT_EQ(bytes_of_turns(rendered_with_x(source, JinjaText::of_turn("  One, two\n"))), expected)
        << source;
  }
}

TEST(JinjaTemplateTest, WhatIsNotSupportedIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{% include 'x' %}", "line 2: the tag {% include %} is not supported."},
      {"{{ x | groupby }}", "line 1: the filter groupby is not supported."},
      {"{{ x is callable }}", "the test callable is not supported."},
      {"{{ x.casefold() }}", "the method casefold() of texts is not supported."},
      {"{{ [1].append(2) }}", "the method append() of lists is not supported."},
      {"{{ pad_token }}", "the name pad_token is not supported."},
      {"{{ cycler('a') }}", "the name cycler is not supported."},
      {"{{ 1 < 2 < 3 }}", "a chain of comparisons is not supported."},
      {"{{ 3 / 2 }}", "the operator / is not supported."},
      {"{{ 1.5 }}", "the number that begins with 1 is not supported."},
      {"{{ f(**x) }}", "the argument ** is not supported."},
      {"{{ f(*x, *x) }}", "the argument * after * is not supported."},
      {"{{ {[1]: 2} }}", "a dict with the key a list is not supported."},
      {"{{ {'\u00e9': 1, 'E': 2} | dictsort }}", "the case of letters outside ASCII"},
      {"{{ '\u0663' | int }}", "the filter int of a text with characters outside ASCII"},
      {"{{ '1e30' | int }}", "too large or too small a number, is not supported."},
      {"{{ 'ff' | int(0, 16) }}", "the filter int with a base other than 10 is not supported."},
      {"{{ [x] }}", "writing a list as text is not supported."},
      {"{{ (1).numerator }}", "the attribute numerator of an integer is not supported."},
      {"{{ range(3).stop }}", "the attribute stop of an iterator is not supported."},
      {"{{ true.real }}", "the attribute real of a boolean is not supported."},
      {"{{ x | join(sep='') }}", "join() with these arguments is not supported."},
      {"{{ '\u00e9' | upper }}", "the case of letters outside ASCII"},
      {"{{ strftime_now('%d') }}", "writes today's date (strftime_now), so results would depend"}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(complaint(source), AllOf(StartsWith("line "), HasSubstr(expected))) << source;
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
      {"{{ f(*x, 1) }}", "an argument without a name follows *."},
      {"{{ x | dictsort }}", "the filter dictsort needs a dict"},
      {"{{ {1: 1, 'a': 2} | dictsort }}", "an integer is needed, but it is a text."},
      {"{{ y | int }}", "the filter int is given 'y', which is undefined."},
      {"{{ x is in }}", "the test in needs a value."},
      {"{{ [1] in {1: 2} }}", "a list in a dict is not possible."},
      {"{{ y.z }}", "it reads z of 'y', which is undefined."},
      {"{{ none | length }}", "the length of none is asked for, but it has none."},
      {"{{ 'a' in none }}", "a text in none is not possible."},
      {"{{ 1 + x }}", "an integer + a text is not supported."},
      {"{% set x.y = 1 %}", "it sets x.y, but x is no namespace."},
      {"\n{{ raise_exception('no ' ~ 1) }}", "line 2: it refuses the chat: \"no 1\"."}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(complaint(source), HasSubstr(expected)) << source;
  }
}

TEST(JinjaTemplateTest, ABranchThatIsNotTakenMayHoldAnything) {
  EXPECT_EQ(
      rendered_with_x("{% if x %}{{ x | groupby('a') }}{{ 1 / 0 }}{% endif %}b", jinja_text(""))
          .bytes(),
      "b");
}

TEST(JinjaTemplateTest, IntegersAreExactOrRefused) {
  const std::string least = "{% set m = 0-922337203685477*10000-5808 %}";
  const std::pair<std::string, const char*> cases[] = {
      {"{{ range(0, m, -1) }}", "a range has more than 100000 numbers"},
      {"{{ range(m, 0-(m+1)) }}", "a range has more than 100000 numbers"},
      {"{{ range(0, 200001, 2) }}", "a range has more than 100000 numbers"},
      {"{{ range(0, 1, 0) }}", "or the step 0"},
      {"{{ m // -1 }}", "-9223372036854775808 // -1 is too large an integer"},
      {"{{ -m }}", "0 - -9223372036854775808 is too large an integer"},
      {"{{ m * -1 }}", "-9223372036854775808 * -1 is too large an integer"},
      {"{{ m % 0 }}", "it divides -9223372036854775808 by 0"},
      {"{{ 007 }}", "the number that begins with 007 is not supported"}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(complaint(least + source), HasSubstr(expected)) << source;
  }
  const std::pair<std::string, const char*> rendered[] = {
      {"{{ range(0, 200000, 2) | length }} {{ range(5, -5, -3) | join(' ') }}", "100000 5 2 -1 -4"},
      {"{{ range(0, m, m) | list | tojson }}{{ range(3, 0) | length }}", "[0]0"},
      {"{{ 'abc'[1::0-(m+1)] }}{{ 'abc'[::m] }}{{ 'abc'[m:] }}", "bcabc"},
      {"{{ m % -1 }} {{ 7 // -1 }} {{ 7 % -3 }}", "0 -7 -2"}};
  for (const auto& [source, expected] : rendered) {
    EXPECT_EQ(rendered_with_x(least + source, jinja_text("")).bytes(), expected) << source;
  }
}

TEST(JinjaTemplateTest, LoopsAreThoseOfJinja2OrRefused) {
  const std::pair<const char*, const char*> rendered[] = {
      {"{% for i in [1] %}a{% break %}{% else %}b{% endfor %}", "ab"},
      {"{% for i in [1, 2] %}a{% continue %}{% else %}b{% endfor %}", "aab"},
      {"{% for i in [1, 2] %}a{% if i == 2 %}{% break %}{% endif %}{% else %}b{% endfor %}", "aa"},
      {"{% set n = namespace(f=2) %}{% for i in [1, 2] if i == n.f %}{{ i }}{% endfor %}", "2"},
      {"{% set n = namespace(l=[1, 2]) %}{% for i in n.l if i > 1 %}{% set n.l = i %}{{ n.l }}{% "
       "endfor %}",
       "2"}};
  for (const auto& [source, expected] : rendered) {
    EXPECT_EQ(rendered_with_x(source, jinja_text("")).bytes(), expected) << source;
  }
  EXPECT_THAT(complaint("{% set n = namespace(f=1) %}{% for i in [1, 2] if n.f %}{% set n.f = 0 %}"
                        "{% endfor %}"),
              HasSubstr("a loop whose condition reads a namespace that changes is not supported"));
}

TEST(JinjaTemplateTest, BreaksNeedALoopAndNamesCanBeRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% break %}", "the tag break stands in no loop"},
      {"{% for i in x %}{% else %}{% continue %}{% endfor %}", "the tag continue stands in no"},
      {"{% for i in x %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}", "in no loop"},
      {"{% for i in x %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "in no loop"},
      {"{% for i in x %}{% set y %}{% break %}{% endset %}{% endfor %}", "in no loop"},
      {"{% for loop in x %}{% endfor %}", "the name loop cannot be set"},
      {"{% for i in x %}{% set loop = 1 %}{% endfor %}", "the name loop cannot be set"},
      {"{% set true = 1 %}", "the name true cannot be set"},
      {"{% macro f(a, a) %}{% endmacro %}", "the parameter a comes twice"},
      {"{{ f(a=1, a=2) }}", "the argument a comes twice"},
      {"{% for i, in x %}{% endfor %}", "'in' is needed where 'x' stands"}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(error_message<Error>([source = source] { JinjaTemplate{source}; }),
                HasSubstr(expected))
        << source;
  }
}

TEST(JinjaTemplateTest, NamesThatJinja2WouldHideAreRefused) {
  EXPECT_THAT(error_message<Error>([] {
                rendered_with_x(
                    "{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% set x = 1 %}{{ f() }}",
                    jinja_text("a"));
              }),
              HasSubstr("setting x after a block within has read it is not supported"));
  EXPECT_THAT(error_message<Error>([] {
                rendered_with_x(
                    "{% for i in [1] %}{% for j in [1] %}{{ x }}{% endfor %}{% break "
                    "%}{% set x = 1 %}{% endfor %}",
                    jinja_text("a"));
              }),
              HasSubstr("setting x after a block within has read it is not supported"));
  EXPECT_EQ(rendered_with_x("{{ x }}{% for i in [1] %}{{ x }}{% endfor %}{% set x = 1 %}{{ x }}",
                            jinja_text("a"))
                .bytes(),
            "aa1");
}

TEST(JinjaTemplateTest, AKeyKeepsItsFirstPlace) {
  EXPECT_EQ(rendered_with_x("{{ {'a': 1, 'b': 2, 'a': 3} | tojson }}", jinja_text("")).bytes(),
            R"({"a": 3, "b": 2})");
}

TEST(JinjaTemplateTest, NamespacesThatHoldThemselvesAreFreed) {
  // The address sanitizer reports leaks.
  EXPECT_EQ(rendered_with_x("{% set n = namespace() %}{% set n.n = n %}{% set n.f = {'a': n}.get "
                            "%}{{ n.n.f('a').b is defined }}",
                            jinja_text(""))
                .bytes(),
            "False");
}

std::string repeated(const std::string& part, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += part;
  }
  return all;
}

/// `times` turns, in which the namespace n has l, at first a list, and t, at first a text.
std::string in_turns(int times, const std::string& body, const std::string& behind = "") {
  return "{% set n = namespace(l=[1], t='x') %}" +
         fmt::format("{{% for i in range({}) %}}", times) + body + "{% endfor %}" + behind;
}

/// Macros that call one another, each in many loops.
std::string nested_macros(int macros, int loops) {
  std::string all = "{% macro f0() %}{% endmacro %}";
  for (int i = 1; i < macros; ++i) {
    all += fmt::format("{{% macro f{}() %}}", i) + repeated("{% for i in [1] %}", loops) +
           fmt::format("{{{{ f{}() }}}}", i - 1) + repeated("{% endfor %}", loops) +
           "{% endmacro %}";
  }
  return all + fmt::format("{{{{ f{}() }}}}", macros - 1);
}

TEST(JinjaTemplateTest, NoTemplateExhaustsTheStack) {
  const std::pair<std::string, const char*> cases[] = {
      {"{{ " + repeated("(", 10000) + "x" + repeated(")", 10000) + " }}", "nested too deeply"},
      {"{{ x" + repeated(" ~ x", 10000) + " }}", "nested too deeply"},
      {"{{ x" + repeated(".y", 10000) + " }}", "nested too deeply"},
      {repeated("{% if x %}", 10000), "nested too deeply"},
      {"{% if x %}" + repeated("{% elif x %}", 10000), "nested too deeply"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros call one another"},
      {nested_macros(29, 185), "nested too deeply"},
      {in_turns(9999, "{% set n.l = [n.l] %}"), "nested more than 200 deep"},
      {in_turns(9999, "{% set n.l = {'a': n.l}.items() %}"), "nested more than 200 deep"},
      {in_turns(9999, "{% set n.l = {'a': n.l}.get %}"), "nested more than 200 deep"}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(complaint(source), HasSubstr(expected)) << source.substr(0, 90);
  }
}

TEST(JinjaTemplateTest, NoTemplateExhaustsTimeOrMemory) {
  const std::string grow = in_turns(24, "{% set n.t = n.t ~ n.t %}");
  const std::pair<std::string, const char*> cases[] = {
      {in_turns(40, "{% set n.t = n.t ~ n.t %}"), "more than 256 MB"},
      {in_turns(40, "{% set n.l = n.l + n.l %}"), "more than 256 MB to render"},
      {in_turns(60, "{% set n.l = [n.l, n.l] %}", "{{ n.l == n.l }}"), "more than 256 MB"},
      {in_turns(60, "{% set n.l = [n.l, n.l] %}", "{{ n.l | tojson }}"), "more than 256 MB"},
      {grow + "{% for i in range(99999) %}{{ '' if n.t == n.t }}{% endfor %}", "more than 256 MB"},
      {grow + "{% for c in n.t %}{% endfor %}", "more than 256 MB"},
      {grow + "{{ n.t.split('x') }}", "more than 256 MB"},
      {in_turns(2000, "{% for j in range(2000) %}{% endfor %}"), "more than 256 MB"},
      {"{{ range(9999999) }}", "a range has more than"}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(complaint(source), HasSubstr(expected)) << source.substr(0, 90);
  }
}

TEST(JinjaTemplateTest, NamespacesInOneAnotherAreTakenApartOneByOne) {
  EXPECT_EQ(
      rendered_with_x(in_turns(30000, "{% set n.l = namespace(l=n.l) %}"), jinja_text("")).bytes(),
      "");
}

TEST(JinjaTemplateTest, MessagesAreShort) {
  const std::string message =
      error_message<Error>([] { JinjaTemplate("{{ x '" + repeated("\u00e9", 9999) + "' }}"); });
  EXPECT_LT(message.size(), 200U);
}

}  // namespace
}  // namespace specdec
