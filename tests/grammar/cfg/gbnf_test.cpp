#include "grammar/cfg/gbnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/grammar/automaton_checks.h"
#include "tests/support/gbnf_grammar.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

bool gbnf_accepts(std::string_view grammar, std::string_view text) {
  return Gbnf(grammar).accepts(text);
}

std::string gbnf_error(std::string_view grammar, const GrammarLimits& limits = {}) {
  return grammar_error([&] {
    RegexStore regexes;
    make_gbnf_automaton(regexes, grammar, "g.gbnf", {.limits = limits});
  });
}

TEST(GbnfTest, LiteralsAndEscapes) {
  Gbnf grammar("root ::= \"a\\n\\t\\r\\\\\\\"\\x41\\u00e9\\U0001F600 é\"");
  EXPECT_TRUE(grammar.accepts("a\n\t\r\\\"A\xC3\xA9\xF0\x9F\x98\x80 é"));
  EXPECT_TRUE(gbnf_accepts("root ::= \"\"", ""));
}

TEST(GbnfTest, Classes) {
  Gbnf grammar("root ::= [a-c\\]\\-^] [^a-z\\n] [-x] [x-] [\\x30-\\x39] .");
  EXPECT_TRUE(grammar.accepts("]A--5\n"));
  EXPECT_TRUE(grammar.accepts("^中xx0中"));
  EXPECT_FALSE(grammar.is_prefix("d"));
  EXPECT_FALSE(grammar.is_prefix("ab"));
  EXPECT_FALSE(grammar.is_prefix("a\n"));
}

TEST(GbnfTest, Repetitions) {
  Gbnf grammar("root ::= \"ab\"* \"c\"+ \"d\"? \"e\"{2} \"f\"{1,} \"g\"{0,2} (\"h\" | \"i\"){,1}");
  EXPECT_TRUE(grammar.accepts("ababccdeeffggi"));
  EXPECT_TRUE(grammar.accepts("ceef"));
  EXPECT_FALSE(grammar.accepts("ceeefg"));
  EXPECT_FALSE(grammar.accepts("ceefggg"));
  EXPECT_TRUE(gbnf_accepts("root ::= \"a\"{2,70000} \"b\"", "aaab"));
}

TEST(GbnfTest, RulesMaySpanLinesAndHaveComments) {
  Gbnf grammar(
      "# a list\n\nroot ::=   # here\n  item-1 # one\n  | (\n  item-1 \",\" # more\n  root)\n\n"
      "item-1 ::= [0-9]\n  | \"x\"\r\nunused ::= \"u\"");
  EXPECT_TRUE(grammar.accepts("1"));
  EXPECT_TRUE(grammar.accepts("1,x,3"));
  EXPECT_FALSE(grammar.accepts("1,"));
}

TEST(GbnfTest, Arithmetic) {
  Gbnf grammar(R"gbnf(
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)gbnf");
  EXPECT_TRUE(grammar.accepts("1 +(a*b2 )/3 = 7\nx=y\n"));
  EXPECT_FALSE(grammar.accepts("1+=7\n"));
  EXPECT_FALSE(grammar.is_prefix("(1))"));
}

TEST(GbnfTest, ChessMoves) {
  Gbnf grammar(R"gbnf(
root    ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move    ::= (pawn | piece | castle) [+#]?
pawn    ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
piece   ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
castle  ::= "O-O" "-O"?
)gbnf");
  EXPECT_TRUE(grammar.accepts("1. e4 e5\n2. Nf3 Nc6\n3. O-O exd4+\n"));
  EXPECT_TRUE(grammar.is_prefix("1. e4 e5\n2. N"));
  EXPECT_FALSE(grammar.is_prefix("1. e9"));
  EXPECT_FALSE(grammar.accepts("1. e4 e5\n"));
}

TEST(GbnfTest, ListOfLines) {
  Gbnf grammar(
      "root ::= item+\n# Excludes various line break characters\n"
      "item ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"");
  EXPECT_TRUE(grammar.accepts("- one\n- zwei é\n"));
  EXPECT_FALSE(grammar.is_prefix("- one\n\n"));
  EXPECT_FALSE(grammar.is_prefix("- \xE2\x80\xA8"));
}

TEST(GbnfTest, CommentMayEndTheText) {
  EXPECT_TRUE(Gbnf("root ::= \"a\" # the end").accepts("a"));
  EXPECT_TRUE(Gbnf("root ::= # nothing").accepts(""));
}

TEST(GbnfTest, OldStyleWhitespaceIsRightRecursive) {
  Gbnf grammar(
      "root ::= \"[\" ws (root (\",\" ws root)*)? \"]\" ws\n"
      "ws ::= ([ \\t\\n] ws)?");
  EXPECT_TRUE(grammar.accepts("[ [],\n [ ] ]  "));
}

TEST(GbnfTest, LeftRecursionIsFine) {
  EXPECT_TRUE(gbnf_accepts("root ::= root \"+\" n | n \n n ::= [0-9]+", "1+22+3"));
  EXPECT_TRUE(gbnf_accepts("root ::= maybe root \"+\" | \"1\" \n maybe ::= \"-\"?", "--1++++"));
}

TEST(GbnfTest, ErrorsNameThePlace) {
  EXPECT_THAT(gbnf_error("root ::= \"a\"\nx := b"),
              AllOf(StartsWith("g.gbnf:2:3:"), HasSubstr("'name ::= ...'")));
  EXPECT_THAT(gbnf_error("root := b"),
              AllOf(StartsWith("g.gbnf:1:6:"), HasSubstr("expected '::='")));
  EXPECT_THAT(gbnf_error("root ::= é"), StartsWith("g.gbnf:1:10:"));
  EXPECT_THAT(gbnf_error("root ::= a b\na ::= c"),
              AllOf(StartsWith("g.gbnf:1:12:"), HasSubstr("'b', 'c' used but not defined")));
  EXPECT_THAT(gbnf_error("a ::= \"x\""), HasSubstr("no rule 'root'"));
  EXPECT_THAT(gbnf_error(""), HasSubstr("no rule 'root'"));
  EXPECT_THAT(gbnf_error("root ::= \"x\"\nroot ::= \"y\""),
              AllOf(StartsWith("g.gbnf:2:1:"), HasSubstr("defined twice")));
  EXPECT_THAT(gbnf_error("root ::= root \"x\""), HasSubstr("no text matches the rule 'root'"));
  EXPECT_THAT(gbnf_error("root ::= [] \"x\""), HasSubstr("no text matches"));
}

TEST(GbnfTest, ErrorsOfParts) {
  EXPECT_THAT(gbnf_error("root ::= \"abc\nx"), HasSubstr("literal is not closed"));
  EXPECT_THAT(gbnf_error("root ::= \"\\q\""),
              AllOf(StartsWith("g.gbnf:1:11:"), HasSubstr("unknown escape '\\q'")));
  EXPECT_THAT(gbnf_error("root ::= \"\\u12\""), HasSubstr("4 hexadecimal digits"));
  EXPECT_THAT(gbnf_error("root ::= \"\\uD800\""), HasSubstr("no character"));
  EXPECT_THAT(gbnf_error("root ::= [a-z"), HasSubstr("class is not closed"));
  EXPECT_THAT(gbnf_error("root ::= [z-a]"), HasSubstr("swap"));
  EXPECT_THAT(gbnf_error("root ::= (\"a\" | \"b\""),
              HasSubstr("group is not closed: expected ')'"));
  EXPECT_THAT(gbnf_error("root ::= \"a\")"), AllOf(StartsWith("g.gbnf:1:13:"), HasSubstr("')'")));
  EXPECT_THAT(gbnf_error("root ::= *"), HasSubstr("'*'"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"{3,2}"), HasSubstr("swap"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"{x}"), HasSubstr("expected a number"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"{2;}"), HasSubstr("expected '}'"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"{99999999999}"), HasSubstr("too large"));
  for (const std::string name : {"[:alpha:]", "[.hyphen.]", "[=a=]"}) {
    EXPECT_THAT(gbnf_error("root ::= [x" + name + "]"),
                AllOf(HasSubstr(":1:12: "), HasSubstr("POSIX classes '" + name + "'")));
  }
  for (const std::string token : {"!<think>", "!<[1234]>"}) {
    EXPECT_THAT(gbnf_error("root ::= \"a\"\n  " + token + " \"b\""),
                AllOf(HasSubstr(":2:3: "), HasSubstr("'any token but this one' is not supported")));
  }
  EXPECT_THAT(gbnf_error("root ::= \"\xFF\""), HasSubstr("not UTF-8"));
}

TEST(GbnfTest, HostileGrammarsAreErrorsOrFine) {
  EXPECT_THAT(gbnf_error("root ::= " + std::string(100'000, '(')), HasSubstr("max_nesting = 200"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"" + std::string(100'000, '*')), HasSubstr("in a row"));
  EXPECT_THAT(gbnf_error("root ::= \"(\" root{2,70000} \")\" | \"x\""),
              AllOf(StartsWith("g.gbnf:1:14:"), HasSubstr("max_unrolled = 10000")));
  EXPECT_THAT(gbnf_error(std::string(5 << 20, ' ')), HasSubstr("max_bytes"));
  EXPECT_THAT(gbnf_error(std::string_view("root ::= \"a\" \0 \"b\"", 18)), HasSubstr("expected"));
  std::string deep = "root ::= ";
  for (int i = 0; i < 190; ++i) {
    deep += "(\"a\" | ";
  }
  deep += "root \"b\"";
  EXPECT_EQ(gbnf_error(deep + std::string(190, ')')), "no error");
}

TEST(GbnfTest, NestingIsBoundedWhateverTheLimitsSay) {
  const GrammarLimits limits = {.max_nesting = 10'000};
  const auto nested = [](size_t depth) {
    return "root ::= " + std::string(depth, '(') + "\"a\"" + std::string(depth, ')');
  };
  EXPECT_EQ(gbnf_error(nested(1000), limits), "no error");
  EXPECT_THAT(gbnf_error(nested(9999), limits), HasSubstr("max_nesting = 1000"));
}

class ReadyGrammar : public Gbnf {
 public:
  explicit ReadyGrammar(const std::string& name) : Gbnf(read(name)) {}

 private:
  static std::string read(const std::string& name) {
    std::ifstream file(SPECDEC_SOURCE_DIR "/configs/grammars/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

TEST(ReadyGrammarsTest, Json) {
  ReadyGrammar grammar("json.gbnf");
  EXPECT_TRUE(grammar.accepts(" {\"a\" : [1, -2.5e+3, null], \"\\u00e9é\": {}} \n"));
  EXPECT_TRUE(grammar.accepts("\"text\""));
  for (const std::string_view text :
       {"{,", "[1,]", "01", "[1 2", "\"\n", "{\"a\" 1", "-a", "\"\\x"}) {
    EXPECT_FALSE(grammar.is_prefix(text)) << text;
  }
}

TEST(ReadyGrammarsTest, Dates) {
  ReadyGrammar grammar("iso_date.gbnf");
  for (const std::string_view text : {"2024-02-29", "2000-02-29", "1999-12-31",
                                      "2024-01-05T23:59:59Z", "2024-01-05T00:00:00.125+05:30"}) {
    EXPECT_TRUE(grammar.accepts(text)) << text;
  }
  for (const std::string_view text : {"2023-02-29", "1900-02-29", "2024-04-31", "2024-13",
                                      "2024-00", "2024-01-05T24", "2024-01-05 "}) {
    EXPECT_FALSE(grammar.is_prefix(text)) << text;
  }
}

TEST(ReadyGrammarsTest, Arithmetic) {
  ReadyGrammar grammar("arithmetic.gbnf");
  EXPECT_TRUE(grammar.accepts("1 + 2.5 * (x - -3) ^ 2"));
  EXPECT_TRUE(grammar.accepts("sqrt(2, y)/4"));
  EXPECT_FALSE(grammar.is_prefix("1 + *"));
  EXPECT_FALSE(grammar.is_prefix("(1))"));
  EXPECT_FALSE(grammar.accepts("1 +"));
}

}  // namespace
}  // namespace specdec
