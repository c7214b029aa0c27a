#include "grammar/cfg/lark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "grammar/grammar_source.h"
#include "grammar/sampling/grammar_sampler.h"
#include "tests/grammar/automaton_checks.h"
#include "tests/support/grammar_vocabularies.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Lark {
 public:
  explicit Lark(std::string_view text) : automaton_(make_lark_automaton(regexes_, text, "test")) {}
  bool accepts(std::string_view text) { return specdec::accepts(*automaton_, text); }
  bool is_prefix(std::string_view text) { return specdec::is_prefix(*automaton_, text); }
  std::string explain(std::string_view text) {
    return automaton_->explain(walk(*automaton_, text));
  }
  Automaton& automaton() { return *automaton_; }

 private:
  RegexStore regexes_;
  std::unique_ptr<Automaton> automaton_;
};

bool lark_accepts(std::string_view grammar, std::string_view text) {
  return Lark(grammar).accepts(text);
}

std::string lark_error(std::string_view grammar) {
  return grammar_error([&] {
    RegexStore regexes;
    make_lark_automaton(regexes, grammar, "g.lark");
  });
}

constexpr std::string_view kJson = R"lark(
// the example of Lark's tutorial, in shape
?start: value
?value: object
      | array
      | string
      | SIGNED_NUMBER      -> number
      | "true"             -> true
      | "false"            -> false
      | "null"             -> null
array  : "[" [value ("," value)*] "]"
object : "{" [pair ("," pair)*] "}"
pair   : string ":" value
string : ESCAPED_STRING
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
)lark";

TEST(LarkTest, IgnoredTextStandsBetweenTerminals) {
  Lark json(kJson);
  EXPECT_TRUE(json.accepts("{\"a\":[1,-2.5e3,null]}"));
  EXPECT_TRUE(json.accepts(" \n{ \"a b\" :\t[ 1 , true ] , \"\":{ } }  "));
  EXPECT_FALSE(json.is_prefix("tr ue"));
  EXPECT_FALSE(json.is_prefix("[1,]"));
  EXPECT_FALSE(json.accepts("[1"));
  EXPECT_FALSE(json.accepts("  "));
}

TEST(LarkTest, SeveralThingsAreIgnored) {
  Lark grammar(
      "start: \"a\" B+\nB: \"b\" \"b\"\n%ignore \" \"\n%ignore /#[^\\n]*\\n/\n%ignore /x{2}/");
  EXPECT_TRUE(grammar.accepts(" a#one\n bb xxbb "));
  EXPECT_FALSE(grammar.is_prefix("a b b"));
  EXPECT_FALSE(grammar.accepts("a x bb"));
}

TEST(LarkTest, WithoutIgnoreNothingStandsBetween) {
  Lark grammar("start: \"a\" \"b\"");
  EXPECT_TRUE(grammar.accepts("ab"));
  EXPECT_FALSE(grammar.is_prefix("a "));
  EXPECT_FALSE(grammar.is_prefix(" "));
}

TEST(LarkTest, RepetitionsAndOptions) {
  Lark grammar("start: \"a\"~2 (\"b\" | \"c\")~1..2 [\"d\"] \"e\"* \"f\"+ \"g\"?");
  EXPECT_TRUE(grammar.accepts("aabf"));
  EXPECT_TRUE(grammar.accepts("aacbdeeffg"));
  EXPECT_FALSE(grammar.accepts("abf"));
  EXPECT_FALSE(grammar.accepts("aabcbf"));
  EXPECT_TRUE(lark_accepts("start: \"a\" ~ 2 .. 70000", "aaa"));
}

TEST(LarkTest, LiteralsRangesAndFlags) {
  Lark grammar("start: \"Sel\"i \"é\"i \"a\"..\"c\" /[x-z]+/i /./s \"\\n\\t\\\"\\\\\\x41\\u00e9\"");
  EXPECT_TRUE(grammar.accepts("sELÉbxYZ\n\n\t\"\\A\xC3\xA9"));
  EXPECT_FALSE(grammar.is_prefix("selbd"));
  EXPECT_FALSE(grammar.is_prefix("seléd"));
  EXPECT_TRUE(lark_accepts("start: /a\\/[b\\/]/ // a comment", "a//"));
}

TEST(LarkTest, LinesCommentsAndModifiers) {
  Lark grammar(
      "// first\n?start.2: _list -> list // trailing\n  // between\n  | never\n\n"
      "_list: item\n\n     | _list \",\" item\n!item: (NAME\n   | INT\n ) # or this\n"
      "!never: \"!\" \\\n \"?\"\nNAME.-1: /[a-z]+/\n%import common (INT,\n WS)\n%ignore WS\n");
  EXPECT_TRUE(grammar.accepts("a, 1,b"));
  EXPECT_TRUE(grammar.accepts("! ?"));
  EXPECT_FALSE(grammar.is_prefix("a,,"));
}

TEST(LarkTest, LeftRecursiveCalculator) {
  Lark grammar(R"lark(
    ?start: sum
          | NAME "=" sum    -> assign_var
    ?sum: product
        | sum "+" product   -> add
        | sum "-" product   -> sub
    ?product: atom
        | product "*" atom  -> mul
        | product "/" atom  -> div
    ?atom: NUMBER           -> number
         | "-" atom         -> neg
         | NAME             -> var
         | "(" sum ")"
    %import common.CNAME -> NAME
    %import common.NUMBER
    %import common.WS_INLINE
    %ignore WS_INLINE
)lark");
  EXPECT_TRUE(grammar.accepts("x = 1 + -(2*y3) / .5"));
  EXPECT_FALSE(grammar.is_prefix("x = = "));
  EXPECT_FALSE(grammar.is_prefix("1\n"));
  EXPECT_FALSE(grammar.accepts("(1"));
  std::mt19937 random(5);
  for (int round = 0; round < 10; ++round) {
    const std::string text = random_text(grammar.automaton(), random, 30);
    EXPECT_TRUE(can_finish(grammar.automaton(), walk(grammar.automaton(), text))) << text;
  }
}

TEST(LarkTest, CommonTerminals) {
  const auto fits = [](const std::string& name, std::string_view text) {
    return lark_accepts("start: " + name + "\n%import common." + name, text);
  };
  for (const std::string_view text : {"1", "1.", ".5", "1.5e-3", "2E10"}) {
    EXPECT_TRUE(fits("NUMBER", text)) << text;
    EXPECT_TRUE(fits("SIGNED_NUMBER", "-" + std::string(text))) << text;
    EXPECT_EQ(fits("FLOAT", text), text != "1") << text;
  }
  EXPECT_FALSE(fits("NUMBER", "-1"));
  EXPECT_FALSE(fits("NUMBER", "."));
  EXPECT_TRUE(fits("ESCAPED_STRING", "\"a\\\"b\\\\\""));
  EXPECT_FALSE(fits("ESCAPED_STRING", "\"a\"b\""));
  EXPECT_TRUE(fits("CNAME", "_a1"));
  EXPECT_FALSE(fits("CNAME", "1a"));
  EXPECT_TRUE(fits("NEWLINE", "\r\n\n"));
  EXPECT_TRUE(fits("C_COMMENT", "/* a **/"));
  EXPECT_FALSE(fits("C_COMMENT", "/* a */ */"));
  EXPECT_TRUE(fits("WORD", "Ab"));
}

TEST(LarkTest, CommonTerminalsMayBeImportedTwice) {
  const std::string twice = "start: INT N\n%import common.INT\n%import common (INT, WS)\n";
  EXPECT_TRUE(lark_accepts(twice + "%import common.INT -> N", "12"));
  EXPECT_THAT(lark_error(twice + "%import common.INT -> N\n%import common.CNAME -> N"),
              HasSubstr("'N' is defined twice"));
  EXPECT_THAT(lark_error(twice + "N: \"x\"\nINT: \"x\""), HasSubstr("'INT' is defined twice"));
}

TEST(LarkTest, ExplainNamesTerminals) {
  Lark json(kJson);
  EXPECT_THAT(json.explain("["),
              AllOf(HasSubstr("string | "), HasSubstr("SIGNED_NUMBER"), HasSubstr("\"]\": ']'")));
}

TEST(LarkTest, ErrorsNameThePlace) {
  EXPECT_THAT(lark_error("start: \"a\"\nb \"c\""),
              AllOf(StartsWith("g.lark:2:3:"), HasSubstr("expected ':' after 'b'")));
  EXPECT_THAT(lark_error("start: a B\na: c"),
              AllOf(StartsWith("g.lark:1:10:"), HasSubstr("'B', 'c' used but not defined")));
  EXPECT_THAT(lark_error("a: \"x\""), HasSubstr("no rule 'start'"));
  EXPECT_THAT(lark_error("start: aB"), HasSubstr("'aB' is no name"));
  EXPECT_THAT(lark_error("start: \"x\"\nstart: \"y\""), HasSubstr("defined twice"));
  EXPECT_THAT(lark_error("start: start \"x\""),
              AllOf(StartsWith("g.lark:1:1:"), HasSubstr("no text matches the rule 'start'")));
  EXPECT_THAT(lark_error("start: A\nA: b\nb: \"x\""),
              HasSubstr("a terminal cannot use the rule 'b'"));
  EXPECT_THAT(lark_error("start: A\nA: \"x\" A | \"y\""), HasSubstr("refers to itself"));
  EXPECT_THAT(lark_error("start: \"a\" }"), AllOf(StartsWith("g.lark:1:12:"), HasSubstr("'}'")));
}

TEST(LarkTest, ClassesAreThoseOfPython) {
  const auto fits = [](const std::string& pattern, std::string_view text) {
    return lark_accepts("start: /" + pattern + "/", text);
  };
  EXPECT_TRUE(fits("\\w+", "é_x٣") && fits("\\d", "٣") && fits("(?a:\\w)", "x"));
  EXPECT_FALSE(fits("(?a:\\w)", "é") || fits("(?a:\\d)", "٣") || fits("\\w", "-"));
  EXPECT_TRUE(fits("\\s", "\x1C") && fits("\\s", "\xC2\x85") && fits("\\S", "\xEF\xBB\xBF"));
  EXPECT_TRUE(fits(".", "\r") && fits(".", "\xE2\x80\xA8") && !fits(".", "\n"));
  EXPECT_TRUE(fits("[]a]{,2}", "]a") && fits("\\101\\x42\\u0043", "ABC"));
  EXPECT_TRUE(fits("(?i:I)", "\xC4\xB1") && fits("(?P<n>a)(?#b)c", "ac"));
}

TEST(LarkTest, FlagsOfRegularExpressions) {
  EXPECT_TRUE(lark_accepts("start: /a.b/is", "A\nB") && !lark_accepts("start: /a.b/i", "A\nB"));
  EXPECT_TRUE(lark_accepts("start: /a b # c\n  c/x \"d\"", "abcd"));
  EXPECT_TRUE(lark_accepts("start: /a\\n^b/m", "a\nb") &&
              lark_accepts("start: /a$\\nb/mx", "a\nb"));
  EXPECT_TRUE(lark_accepts("start: /é/iu", "É"));
  EXPECT_THAT(lark_error("start: /a/l"), HasSubstr("flag 'l'"));
  EXPECT_THAT(lark_error("start: /a\nb/i"), HasSubstr("add the flag x"));
}

TEST(LarkTest, FlagsAtTheBeginningOfAPartOfATerminal) {
  EXPECT_TRUE(lark_accepts("start: A\nA: /(?i)a.*?b/", "AxB"));
  EXPECT_TRUE(lark_accepts("start: A\nA: /(?i)if(?!x)y/", "IFY"));
  EXPECT_TRUE(lark_accepts("start: A\nA: /(?x)a (?=b) b # c/", "ab"));
  Lark joined("start: A\nA: /(?x)(?i)a (?=b) b # c/ \"c\" /(?s)d.*?e/");
  EXPECT_TRUE(joined.accepts("ABcd\ne"));
  EXPECT_FALSE(joined.is_prefix("ABC") || joined.is_prefix("abcD"));
  EXPECT_TRUE(lark_accepts("start: /(?i)a b # c/x \"d\"", "ABd"));
  EXPECT_THAT(lark_error("start: /(?-i)a/"), HasSubstr("write '(?-i:...)'"));
}

TEST(LarkTest, ErrorsOfTerminalsNameTheirParts) {
  EXPECT_THAT(
      lark_error("start: A \"x\"\nA: /if\\b/"),
      AllOf(StartsWith("g.lark:2:4: pattern 'if\\b', character 3"), HasSubstr("after the")));
  EXPECT_THAT(lark_error("start: A \"x\"\nA: \"a-\" /if\\b/"),
              StartsWith("g.lark:2:4: the terminal 'A', put together from its parts: pattern "
                         "'a\\-(?:if\\b)', character 9"));
}

TEST(LarkTest, AssertionsSeeTheirTerminalOnly) {
  EXPECT_THAT(lark_error("start: /if\\b/ /[a-z]+/"),
              AllOf(StartsWith("g.lark:1:8:"), HasSubstr("character 3"), HasSubstr("after the")));
  EXPECT_THAT(lark_error("start: IF\nIF: /\\bif/"),
              AllOf(StartsWith("g.lark:2:5:"), HasSubstr("before the terminal")));
  for (const std::string pattern : {"a$", "a(?=b)", "a(?!b)", "[ab]+(?!a)", "(?!ab)a?", "a\\Z"}) {
    EXPECT_THAT(lark_error("start: /" + pattern + "/"), HasSubstr("after the terminal")) << pattern;
  }
  for (const std::string pattern : {"^a", "(?<=b)a", "(?<!b)a", "\\Aa", "\\Ba", "b?(?<!b)a"}) {
    EXPECT_THAT(lark_error("start: /" + pattern + "/"), HasSubstr("before the terminal"))
        << pattern;
  }
  EXPECT_TRUE(lark_accepts("start: /(?!if\\b)[a-z]{2} x/ \"y\"", "ab xy"));
  EXPECT_FALSE(lark_accepts("start: /(?!if\\b)[a-z]{2} x/", "if x"));
  EXPECT_TRUE(lark_accepts("start: /a\\b-(?<=-)b(?!c)d/ /[a-z]/", "a-bdx"));
  EXPECT_TRUE(lark_accepts("start: A\nA: /if\\b/ \" \" \"x\"", "if x"));
  EXPECT_FALSE(lark_accepts("start: A\nA: /if\\b/ (\" \" | \"f\") \"x\"", "iffx"));
}

TEST(LarkTest, LazyQuantifiersEndAtTheFirstChance) {
  const std::string grammar = "start: TEXT \"b\"?\n";
  EXPECT_TRUE(lark_accepts(grammar + "TEXT: /\".*?\"/", "\"a\"b"));
  EXPECT_FALSE(lark_accepts(grammar + "TEXT: /\".*?\"/", "\"a\"b\""));
  Lark comment("start: C+\nC: OPEN /(.|\\n)*?/ \"*/\"\nOPEN: \"/*\"");
  EXPECT_TRUE(comment.accepts("/* a\n* /**/") && comment.accepts("/**//*x*/"));
  EXPECT_FALSE(comment.accepts("/* */ */"));
  EXPECT_TRUE(lark_accepts("start: /a??b/ /a{1,3}?b/ /a+?/", "baaba"));
  EXPECT_FALSE(lark_accepts("start: /a+?/", "aa"));
  EXPECT_TRUE(lark_accepts("start: /#(?=#).*?;/ \"x;\"", "##a;x;"));
  EXPECT_FALSE(lark_accepts("start: /#(?=#).*?;/", "##a;x;"));
  EXPECT_FALSE(lark_accepts("start: /#(?=#).*?;/", "#a;"));
  EXPECT_THAT(lark_error("start: /a(?!bc).*?b/"), HasSubstr("after the terminal"));
  EXPECT_TRUE(lark_accepts("start: /(?:ab)*?c/", "ababc"));
  EXPECT_TRUE(
      lark_accepts("start: S\nS: \"'\" _STRING_INNER \"'\"\n%import common._STRING_INNER", "'a'"));
  EXPECT_THAT(lark_error("start: /.*?(a|bb)/"), HasSubstr("lazy quantifier is not supported here"));
  EXPECT_THAT(
      lark_error("start: /(?:(?!end)[\\s\\S])*end/"),
      AllOf(HasSubstr("character 18"), HasSubstr("write '.*?' before it, with the flag s")));
  Lark instead("start: /.*?end/s \"x\"");
  EXPECT_TRUE(instead.accepts("en\nendx"));
  EXPECT_FALSE(instead.accepts("endendx"));
  EXPECT_THAT(lark_error("start: A\nA: /b*?/ A"), HasSubstr("refers to itself"));
}

TEST(LarkTest, TemplatesAreRulesForEachArgument) {
  Lark list(
      "start: _sep{NAME, \",\"} \";\" sep{pair{NAME, /[0-9]/}, \"&\"}\n"
      "_sep{x, d}: x (d x)*\n"
      "sep{item, mark}.2: item\n  | sep{item, mark} mark item\n"
      "pair{k, v}: k \"=\" v\nNAME: /[a-z]+/\n%ignore \" \"");
  EXPECT_TRUE(list.accepts("a, b ,c ; x=1 & y = 2"));
  EXPECT_FALSE(list.is_prefix("a,;"));
  EXPECT_FALSE(list.is_prefix("a;x=1,"));
  EXPECT_TRUE(lark_accepts("start: two{two{\"a\"}}\ntwo{x}: x x", "aaaa"));
  EXPECT_TRUE(lark_accepts("start: a{r}\na{x}: \"(\" a{x} \")\" | x\nr: \"z\"", "((z))"));
  EXPECT_THAT(lark_error("start: a{\"b\"}"),
              AllOf(StartsWith("g.lark:1:8:"), HasSubstr("no template 'a'")));
  EXPECT_THAT(lark_error("start: a{\"b\"}\na{x, y}: x y"),
              HasSubstr("takes 2 arguments, here are 1"));
  EXPECT_THAT(lark_error("start: a{\"b\"}\na{x}: x\na{y}: y"), HasSubstr("defined twice"));
  EXPECT_THAT(lark_error("start: a{\"b\"}\na{x, x}: x"), HasSubstr("two parameters 'x'"));
  EXPECT_THAT(lark_error("start: \"b\"\na{x}: x nope"), HasSubstr("'nope' used but not defined"));
  EXPECT_THAT(lark_error("start: a{\"b\"}\na{x}: x a{b{x}}?\nb{x}: x x"),
              HasSubstr("needs more and more of itself"));
  EXPECT_THAT(lark_error("start: \"a\"\nA{x}: x"), HasSubstr("has a terminal's name"));
  EXPECT_THAT(lark_error("start: a{}"), HasSubstr("expected a name"));
  EXPECT_THAT(lark_error("start: a{b c}"), HasSubstr("expected ',' or '}'"));
}

TEST(LarkTest, LazyRulesAndSuffixesEndAtTheFirstChance) {
  for (const std::string rule :
       {"text[lazy]: /.*/ \"<e>\"", "text[suffix=\"<e>\"]: /.*/", "text[ suffix=E ]: /.*/",
        "text[stop=\"<e>\"]: /.*/", "text[stop=/<[e]>/]: /.*/", "text[stop=E]: /.*/",
        "text[suffix=/<e>/, lazy]: /.*/", "text[lazy]: T\nT: /.*<e>/"}) {
    Lark lazy("start: text \"b\"*\n" + rule + "\nE: \"<e>\"\n%ignore \"!\"");
    EXPECT_TRUE(lazy.accepts("a<<e>b") && lazy.accepts("<e>!b!")) << rule;
    EXPECT_FALSE(lazy.is_prefix("a<e>c") || lazy.accepts("a<e>b<e>")) << rule;
  }
  EXPECT_TRUE(lark_accepts("start: N N\nN[lazy]: /[0-9]+/", "12"));
  EXPECT_FALSE(lark_accepts("start: N N\nN[lazy]: /[0-9]+/", "123"));
  EXPECT_THAT(lark_error("start: t\nt[stop=\"\"]: /.*/"),
              AllOf(StartsWith("g.lark:2:8:"), HasSubstr("an empty stop")));
  EXPECT_THAT(lark_error("start: t\nt[suffix=\"\"]: /.*/"),
              AllOf(StartsWith("g.lark:2:10:"), HasSubstr("an empty suffix")));
  EXPECT_THAT(lark_error("start: t\nt[stop=]: /.*/"), HasSubstr("expected the stop"));
  EXPECT_THAT(lark_error("start: t\nt[lazy, temperature=0.5]: /.*/"),
              AllOf(StartsWith("g.lark:2:9:"), HasSubstr("'sampling'")));
  EXPECT_THAT(lark_error("start: t\nt[greedy]: /.*/"),
              HasSubstr("'greedy' is not supported; lazy, suffix"));
  EXPECT_THAT(lark_error("start: t\nt[lazy]: start"), HasSubstr("cannot use the rule 'start'"));
  EXPECT_THAT(lark_error("start: t\nt[lazy]: /a*?b/"), HasSubstr("without them"));
  EXPECT_THAT(lark_error("start: t\nt[lazy: /a/"), HasSubstr("expected ',' or ']'"));
}

TEST(LarkTest, AttributesStandOnceAndInTheirForm) {
  const auto error = [](const std::string& attributes) {
    return lark_error("start: t\nt[" + attributes + "]: /.*/");
  };
  EXPECT_THAT(error("suffix=\"a\", stop=\"b\""),
              AllOf(StartsWith("g.lark:2:15:"), HasSubstr("suffix and stop are the same")));
  EXPECT_THAT(error("stop=\"a\",suffix=\"a\""), StartsWith("g.lark:2:12:"));
  EXPECT_THAT(error("max_tokens=2,max_tokens=3"),
              AllOf(StartsWith("g.lark:2:16:"), HasSubstr("'max_tokens' stands here twice")));
  EXPECT_THAT(error("capture,capture=\"b\""), HasSubstr("'capture' stands here twice"));
  EXPECT_THAT(error("lazy, lazy"),
              AllOf(StartsWith("g.lark:2:9:"), HasSubstr("'lazy' stands here twice")));
  EXPECT_THAT(error("stop=\"a\",stop=\"a\""), HasSubstr("'stop' stands here twice"));
  for (const std::string value : {"lazy=1", "lazy=false", "lazy ="}) {
    EXPECT_THAT(error(value), AllOf(StartsWith("g.lark:2:3:"), HasSubstr("takes no value")));
  }
  EXPECT_THAT(error("suffix"),
              AllOf(StartsWith("g.lark:2:3:"), HasSubstr("needs a text: suffix=\"END\"")));
  EXPECT_THAT(error("stop"), HasSubstr("needs a text: stop=\"END\""));
  EXPECT_THAT(error(""), AllOf(StartsWith("g.lark:2:3:"),
                               HasSubstr("the name of an attribute, found ']'; lazy, suffix=")));
  EXPECT_THAT(error("lazy,"), AllOf(StartsWith("g.lark:2:8:"), HasSubstr("found ']'")));
  EXPECT_THAT(error("=1"), HasSubstr("found '='"));
}

TEST(LarkTest, CountsInBraces) {
  Lark counts("start: A{2} \"b\"{1,2} (\"c\" A){,1} r{1,}\nr: \"d\"\nA: /a/");
  EXPECT_TRUE(counts.accepts("aabd") && counts.accepts("aabbcaddd"));
  EXPECT_FALSE(counts.is_prefix("ab") || counts.is_prefix("aabbb") || counts.accepts("aab"));
  EXPECT_THAT(lark_error("start: \"a\"{3,2}"), HasSubstr("swap"));
  EXPECT_THAT(lark_error("start: \"a\"{3;2}"), HasSubstr("expected '}'"));
}

TEST(LarkTest, SubstringsOfAText) {
  const auto fits = [](const std::string& json, std::string_view text) {
    return lark_accepts("start: S \";\"\nS: %regex " + json, std::string(text) + ";");
  };
  const std::string chunks = "{ \"substring_chunks\" : [\"abc\", \"de\",\n \"fg\"] }";
  for (const std::string_view text : {"", "abc", "de", "fg", "abcde", "defg", "abcdefg"}) {
    EXPECT_TRUE(fits(chunks, text)) << text;
  }
  for (const std::string_view text : {"ab", "cde", "abcfg", "deabc"}) {
    EXPECT_FALSE(fits(chunks, text)) << text;
  }
  EXPECT_TRUE(fits("{\"substring_words\": \"foo bar. é\"}", "bar. é"));
  EXPECT_FALSE(fits("{\"substring_words\": \"foo bar. é\"}", "oo bar"));
  EXPECT_TRUE(fits("{\"substring_chars\": \"ab c\"}", "b c"));
  EXPECT_FALSE(fits("{\"substring_chars\": \"ab c\"}", "bc"));
  std::string book;
  for (int i = 0; i < 3000; ++i) {
    book += "w" + std::to_string(i) + " ";
  }
  EXPECT_TRUE(fits("{\"substring_words\": \"" + book + "\"}", "w2000 w2001 w2002"));
  EXPECT_THAT(lark_error("start: %regex {\"type\": \"number\"}"), HasSubstr("substring_chars"));
  EXPECT_THAT(lark_error("start: %regex 1"), HasSubstr("expected '{'"));
  EXPECT_THAT(lark_error("start: %yaml {}"), HasSubstr("'%yaml' is not supported here"));
}

TEST(LarkTest, WhatIsNotSupportedIsSaidClearly) {
  EXPECT_THAT(lark_error("start: \"\\d\""), HasSubstr("unknown escape"));
  for (const std::string name : {"override", "extend"}) {
    EXPECT_THAT(lark_error("start: \"a\"\n%" + name + " A"),
                AllOf(StartsWith("g.lark:2:1:"), HasSubstr("%" + name + " is not supported")));
  }
  EXPECT_THAT(lark_error("%foo A\n"), HasSubstr("unknown directive '%foo'"));
  EXPECT_THAT(lark_error("%import python.NAME\n"), HasSubstr("only terminals of 'common'"));
  EXPECT_THAT(lark_error("%import common.NOPE\n"),
              AllOf(HasSubstr("no terminal 'NOPE'"), HasSubstr("WS_INLINE")));
  EXPECT_THAT(lark_error("start: \"a\" <|tool \"b\""),
              AllOf(StartsWith("g.lark:1:12:"), HasSubstr("end it with '>'")));
  EXPECT_THAT(lark_error("start: /(a/"), StartsWith("g.lark:1:8:"));
  EXPECT_THAT(lark_error("start: /(a)\\1/"), StartsWith("g.lark:1:8:"));
  EXPECT_THAT(lark_error("start: \"z\"..\"a\""), HasSubstr("smaller one first"));
  EXPECT_THAT(lark_error("start: \"a"), HasSubstr("literal is not closed"));
  EXPECT_THAT(lark_error("start: /a"), HasSubstr("not closed"));
  EXPECT_THAT(lark_error("start: (\"a\"\n"), HasSubstr("group is not closed"));
  EXPECT_THAT(lark_error("start: \"a\"~3..2"), HasSubstr("swap"));
  EXPECT_THAT(lark_error("start: " + std::string(50'000, '[')), HasSubstr("max_nesting"));
}

TEST(LarkTest, TheHeaderOfLlguidance) {
  for (const std::string header :
       {"{}", "{ \"no_forcing\": true,\n \"allow_invalid_utf8\": false }", "{} // as usual"}) {
    EXPECT_TRUE(lark_accepts("%llguidance " + header + "\nstart: \"a\"", "a")) << header;
  }
  EXPECT_THAT(
      lark_error("\n%llguidance {\"allow_invalid_utf8\": true}\nstart: \"a\""),
      AllOf(StartsWith("g.lark:2:1:"), HasSubstr("'allow_invalid_utf8' of %llguidance is not "
                                                 "supported: texts are UTF-8")));
  EXPECT_THAT(lark_error("%llguidance {\"no_forcing\": 1}\nstart: \"a\""),
              HasSubstr("'no_forcing' of %llguidance is true or false"));
  EXPECT_THAT(lark_error("%llguidance {\"lexer\": true}\nstart: \"a\""),
              AllOf(HasSubstr("no option 'lexer'"), HasSubstr("no_forcing, allow_invalid_utf8")));
  EXPECT_THAT(lark_error("%llguidance\nstart: \"a\""),
              AllOf(StartsWith("g.lark:1:12:"), HasSubstr("the end of the line")));
  EXPECT_THAT(lark_error("start: \"a\"\n%llguidance {"), HasSubstr("is not closed"));
  EXPECT_THAT(lark_error("start: \"a\"\n%llguidance {no}"), StartsWith("g.lark:2:14:"));
}

TEST(LarkTest, NamesMayHaveHyphens) {
  Lark names(
      "start: my-rule-2 | _x{MY-NAME, \"-\"} -> my-alias\nmy-rule-2: \"a\"\n  |my-rule-2 \"b\"\n"
      "MY-NAME.-1: /[c-d]/\n_x{it-em, d}: it-em d it-em");
  EXPECT_TRUE(names.accepts("abb") && names.accepts("c-d"));
  EXPECT_FALSE(names.is_prefix("-") || names.is_prefix("c-a"));
  EXPECT_THAT(lark_error("start: a-b"), AllOf(StartsWith("g.lark:1:8:"), HasSubstr("'a-b' used")));
  EXPECT_THAT(lark_error("start: a- \"b\"\na: \"a\""),
              AllOf(StartsWith("g.lark:1:9:"), HasSubstr("'-'")));
  EXPECT_THAT(lark_error("start: a-B\n"), HasSubstr("'a-B' is no name"));
}

TEST(LarkTest, BlanksAroundTheDotsOfARange) {
  for (const std::string range : {"\"a\" .. \"f\"", "\"a\"..  \"f\"", "\"a\"\t..\"f\""}) {
    Lark grammar("start: (" + range + ")~2 A\nA: " + range);
    EXPECT_TRUE(grammar.accepts("afc")) << range;
    EXPECT_FALSE(grammar.is_prefix("ag")) << range;
  }
  EXPECT_TRUE(lark_accepts("start: \"a\" \"b\"", "ab"));
  EXPECT_THAT(lark_error("start: \"a\" .. b"),
              AllOf(StartsWith("g.lark:1:15:"), HasSubstr("the range's end in quotes, found 'b'")));
  EXPECT_THAT(lark_error("start: \"b\" .. \"a\""), HasSubstr("the smaller one first"));
}

TEST(LarkTest, EscapedBlanks) { EXPECT_TRUE(lark_accepts("start: \"\\ \" \"a\\ b\"i", " A b")); }

TEST(LarkTest, ModifiersStandBeforeRules) {
  EXPECT_TRUE(lark_accepts("?start: a\n!?a: \"a\"", "a"));
  EXPECT_THAT(lark_error("start: A\n?A: \"a\""),
              AllOf(StartsWith("g.lark:2:1:"),
                    HasSubstr("'?' stands before rules only, and 'A' is a terminal; write 'A'")));
  EXPECT_THAT(lark_error("start: A\n!A: \"a\""), HasSubstr("'!' stands before rules only"));
}

TEST(LarkTest, DeclaredTerminalsMatchNoText) {
  EXPECT_TRUE(
      lark_accepts("%declare _INDENT _DEDENT  // of a lexer\n%declare A\nstart: \"a\"", "a"));
  EXPECT_THAT(lark_error("start: \"a\" B\n%declare A B"),
              AllOf(StartsWith("g.lark:1:12: "), HasSubstr("'B' is declared"),
                    HasSubstr("match no text here")));
  EXPECT_THAT(lark_error("%declare A B\nstart: \"a\"\nB: \"b\""),
              AllOf(StartsWith("g.lark:1:12: "), HasSubstr("leave out its %declare")));
  EXPECT_THAT(lark_error("start: A\n%declare"), HasSubstr("expected the name of a terminal"));
  EXPECT_THAT(lark_error("start: A\n%declare a"), StartsWith("g.lark:2:10: "));
}

TEST(LarkTest, DoublingTerminalsAreAnError) {
  std::string grammar = "start: T60\nT0: \"ab\"\n";
  for (int i = 1; i <= 60; ++i) {
    const std::string below = "T" + std::to_string(i - 1);
    grammar += "T" + std::to_string(i) + ": " + below + " \"c\" " + below + "\n";
  }
  EXPECT_THAT(lark_error(grammar), HasSubstr("is too large"));
}

TEST(ReadyLarkGrammarsTest, Sql) {
  std::ifstream file(SPECDEC_SOURCE_DIR "/configs/grammars/sql.lark");
  std::stringstream text;
  text << file.rdbuf();
  Lark sql(text.str());
  for (const std::string_view query :
       {"SELECT * FROM users", "SELECT a.id, COUNT(*) AS n FROM orders AS a GROUP BY a.id;",
        "SELECT DISTINCT name FROM t WHERE x >= 1.5 AND NOT (y IN (SELECT id FROM u) OR z IS NULL)",
        "SELECT MAX(a + b * -2) FROM t LEFT JOIN u ON t.id = u.id ORDER BY \"My Col\" DESC LIMIT 5",
        "SELECT 'it''s' || name FROM (SELECT name FROM t) AS s WHERE name LIKE 'a%'"}) {
    EXPECT_TRUE(sql.accepts(query)) << query;
  }
  for (const std::string_view query :
       {"DROP", "SELECT FROM", "SELECT a,, ", "SELECT * FROM t WHERE )", "INSERT", "SELECTa",
        "SELECT *FROM", "SELECT a FROM t WHEREa", "SELECT - -a", "SELECT --a"}) {
    EXPECT_FALSE(sql.is_prefix(query)) << query;
  }
  EXPECT_FALSE(sql.accepts("SELECT a"));
}

/// Letters stand together in names, in functions and in keywords, and these are words of their own.
TEST(ReadyLarkGrammarsTest, KeywordsOfSqlAreSeparated) {
  const std::set<std::string> keywords = {
      "SELECT", "DISTINCT", "AS",    "FROM",  "INNER",  "LEFT",  "OUTER",   "JOIN",
      "ON",     "WHERE",    "GROUP", "BY",    "HAVING", "ORDER", "ASC",     "DESC",
      "LIMIT",  "OFFSET",   "OR",    "AND",   "NOT",    "IN",    "LIKE",    "BETWEEN",
      "IS",     "EXISTS",   "NULL",  "TRUE",  "FALSE",  "COUNT", "SUM",     "AVG",
      "MIN",    "MAX",      "LOWER", "UPPER", "LENGTH", "ABS",   "COALESCE"};
  GrammarSource source;
  source.kind = GrammarKind::kLark;
  std::ifstream file(SPECDEC_SOURCE_DIR "/configs/grammars/sql.lark");
  source.text.assign(std::istreambuf_iterator<char>(file), {});
  const auto grammar = compile_grammar(tiny_vocabulary(1, 0), source);
  const std::regex quoted("'[^']*'|\"[^\"]*\"");
  const std::regex word("[A-Za-z_0-9]*[A-Z][A-Za-z_0-9]*");
  int found = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    CounterRandomness random(1, i);
    std::string text;
    const auto tokens = sample_grammar(grammar, {.max_tokens = 200}, random);
    ASSERT_TRUE(tokens);
    for (const Token token : *tokens) {
      text += grammar->vocabulary().bytes(token);
    }
    const std::string plain = std::regex_replace(text, quoted, "'");
    for (std::sregex_iterator at(plain.begin(), plain.end(), word), end; at != end; ++at) {
      EXPECT_TRUE(keywords.contains(at->str())) << at->str() << " in " << text;
      ++found;
    }
  }
  EXPECT_GE(found, 80);
}

}  // namespace
}  // namespace specdec
