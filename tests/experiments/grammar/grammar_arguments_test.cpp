// specdec grammar sample and explain of grammars that are no JSON Schemas.
#include "experiments/grammar/grammar_arguments.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/tokenizers/tokenizer.h"
#include "experiments/grammar/grammar_config.h"
#include "grammar/compiled_grammar.h"
#include "tests/experiments/cli/cli_result.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

const std::string kGrammars = SPECDEC_SOURCE_DIR "/configs/grammars/";

class GrammarArgumentsTest : public testing::Test {
 protected:
  static const std::shared_ptr<GrammarVocabulary>& vocabulary() {
    static const auto made = make_grammar_vocabulary(*load_tokenizer(kShippedTokenizer));
    return made;
  }

  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text).string();
  }

  /// Texts by seed, one at a time: they may have line breaks.
  static void check_samples(const std::string& file, const GrammarSource& source,
                            const std::vector<std::string>& options) {
    const auto compiled = compile_grammar(vocabulary(), source);
    for (int seed = 0; seed < 15; ++seed) {
      std::vector<std::string> arguments = {"sample", file, "--seed", std::to_string(seed)};
      arguments.insert(arguments.end(), options.begin(), options.end());
      const auto result = grammar_cli(arguments);
      ASSERT_EQ(result.code, 0) << result.err;
      const std::string text = result.out.substr(0, result.out.size() - 1);
      const StateId state = compiled->next(compiled->start(), text);
      EXPECT_TRUE(compiled->is_complete(state)) << file << " " << seed << "\n" << text;
    }
  }

  TemporaryFolder folder_;
};

TEST_F(GrammarArgumentsTest, SamplesOfShippedGrammarsAreValid) {
  for (const char* name : {"json.gbnf", "arithmetic.gbnf", "iso_date.gbnf", "sql.lark"}) {
    const std::string file = kGrammars + name;
    const auto source = read_grammar_file(file, *grammar_kind_of_file(file));
    check_samples(file, source, {"--max-tokens", "60"});
    check_samples(file, source, {"--max-tokens", "400"});
  }
}

TEST_F(GrammarArgumentsTest, SamplesFromAnotherStart) {
  const std::string file = kGrammars + "sql.lark";
  auto source = read_grammar_file(file, GrammarKind::kLark);
  source.start = "limit";
  check_samples(file, source, {"--start", "limit", "--max-tokens", "40"});
}

TEST_F(GrammarArgumentsTest, SamplesOfPatterns) {
  const auto texts = grammar_cli({"sample", "--pattern", "[A-Z]{3}-[0-9]{2}", "-n", "5"});
  EXPECT_THAT(texts.out, MatchesRegex("([A-Z][A-Z][A-Z]-[0-9][0-9]\n)+"));
  EXPECT_EQ(std::count(texts.out.begin(), texts.out.end(), '\n'), 5);
  EXPECT_EQ(grammar_cli({"sample", write("p.regex", "(ab){2}\n")}).out, "abab\n");
  EXPECT_EQ(grammar_cli({"sample", write("p.txt", "x{3}\n"), "--type", "regex"}).out, "xxx\n");
}

TEST_F(GrammarArgumentsTest, DeepBracketsAreClosed) {
  const auto file = write("deep.gbnf", "root ::= \"(\" root \")\" | \"[\" root root \"]\" | \"x\"");
  check_samples(file, read_grammar_file(file, GrammarKind::kGbnf), {"--max-tokens", "500"});
}

TEST_F(GrammarArgumentsTest, TakesTheGrammarOfAConfig) {
  const auto choice = write("c.yaml",
                            "name: other keys do not matter\n"
                            "grammar: {type: choice, choices: [yes, no]}\n");
  const auto answers = grammar_cli({"sample", choice, "-n", "30"});
  EXPECT_THAT(answers.out, MatchesRegex("((yes|no)\n)+"));
  EXPECT_THAT(answers.out, AllOf(HasSubstr("yes\n"), HasSubstr("no\n")));
  const auto trigger = write("t.yaml",
                             "grammar:\n  type: trigger\n  triggers:\n"
                             "    - {begin: <call>, end: </call>, grammar: {type: json_schema, "
                             "schema: {const: {name: f}}}}\n");
  const auto texts = grammar_cli({"sample", trigger, "-n", "20"});
  ASSERT_EQ(texts.code, 0) << texts.err;
  EXPECT_THAT(texts.out, HasSubstr(R"(<call>{"name":"f"}</call>)"));
}

TEST_F(GrammarArgumentsTest, CanonicalGrammarsOfConfigsAreCutAsTheTokenizerDoes) {
  const auto any = write("a.yaml", "grammar: {type: choice, choices: [the people]}");
  const auto own =
      write("o.yaml", "grammar: {type: choice, choices: [the people], canonical: true}");
  EXPECT_EQ(grammar_cli({"sample", own}).out, "the people\n");
  EXPECT_THAT(grammar_cli({"explain", any}).out, Not(HasSubstr("tokens        1 of")));
  EXPECT_THAT(grammar_cli({"explain", own}).out, HasSubstr("tokens        1 of 2048: \"the\"\n"));
  EXPECT_THAT(grammar_cli({"explain", own, "--text", "the"}).out,
              HasSubstr("tokens        1 of 2048: "));
  EXPECT_THAT(
      grammar_cli({"explain", own, "--text", "t"}).out,
      AllOf(HasSubstr("tokens        0 of 2048\n"), HasSubstr("forced        \"he people\""),
            HasSubstr("the tokenizer cuts no text of the grammar here")));
}

TEST_F(GrammarArgumentsTest, Explains) {
  const auto date = grammar_cli({"explain", kGrammars + "iso_date.gbnf", "--text", "2023-02-29"});
  EXPECT_EQ(date.code, 0);
  EXPECT_THAT(date.out, HasSubstr("not allowed   from byte 9 on: 9\n"));
  EXPECT_THAT(date.out, HasSubstr("allowed       2023-02-2\n"));
  EXPECT_THAT(date.out, HasSubstr("may end here  no\n"));
  EXPECT_THAT(date.out, HasSubstr("'0'-'8'"));
  const auto sql =
      grammar_cli({"explain", kGrammars + "sql.lark", "--text", "SELECT * FROM a WHERE "});
  EXPECT_THAT(sql.out, HasSubstr("\"NOT \": 'N'"));
  const auto lark = write("c.lark", "start: a \";\"\na[capture=\"word\"]: /[a-z]+/");
  EXPECT_THAT(grammar_cli({"explain", lark, "--text", "ab;"}).out,
              HasSubstr("captured      word: \"ab\"\n"));
  const auto end = grammar_cli({"explain", "--pattern", "(ab)+", "--text", "ab"});
  EXPECT_THAT(end.out, AllOf(HasSubstr("may end here  yes\n"), HasSubstr("the end of the text\n")));
}

TEST_F(GrammarArgumentsTest, MistakesExitWithTwoAndSayWhere) {
  const auto gbnf = write("a.gbnf", "root ::= \"a\"");
  const auto schema = write("a.json", "true");
  const auto config = write("a.yaml", "grammar: {type: regex, pattern: a}");
  const struct {
    std::vector<std::string> arguments;
    std::string message;
  } cases[] = {
      {{}, "give a grammar's file, or a regular expression with --pattern"},
      {{gbnf, "--pattern", "a"}, "give either a grammar's file or --pattern"},
      {{write("a.txt", "root ::= \"a\"")}, "a.txt: the file's ending is none of .json"},
      {{gbnf, "--type", "choice"}, "--type"},
      {{"--pattern", "a", "--type", "gbnf"}, "leave out --type"},
      {{"--pattern", "(a"}, "--pattern: pattern '(a', character 1: "},
      {{"/no/such/file.lark"}, "/no/such/file.lark"},
      {{write("b.gbnf", "root ::= \"a\"\n )")}, "b.gbnf:2:2: expected another part"},
      {{write("b.lark", "start: x")}, "b.lark:1:8: 'x' used but not defined"},
      {{write("b.regex", "a{2,1}")}, "b.regex: pattern 'a{2,1}', character 2: "},
      {{gbnf, "--start", "top"}, "a.gbnf:1:1: there is no rule 'top'"},
      {{gbnf, "--order", "any"}, "--order is an option of JSON Schemas; leave it out"},
      {{write("c.lark", "start: \"%\""), "--whitespace", "any"}, "is an option of JSON Schemas"},
      {{write("d.lark", "start: %json {} <|no|>"), "--whitespace", "any"},
       "d.lark:1:17: the vocabulary of 2048 tokens has no token '<|no|>'"},
      {{schema, "--start", "top"}, "--start is an option of grammars in GBNF and Lark"},
      {{config, "--whitespace", "any"}, "a config's grammar has its own keys"},
      {{write("b.yaml", "grammar: {type: gbnf, text: 'root ::= x', other: 1}")},
       "b.yaml:1: grammar.other: unknown key"},
      {{write("c.yaml", "name: a")}, "c.yaml:1: the key 'grammar' is missing"},
      {{write("d.yaml", "grammar: {type: json_schema, per_prompt: true}")},
       "d.yaml: grammar: each prompt brings its own schema"},
  };
  for (const char* command : {"sample", "explain"}) {
    for (const auto& [arguments, message] : cases) {
      std::vector<std::string> all = {command};
      all.insert(all.end(), arguments.begin(), arguments.end());
      const auto result = grammar_cli(all);
      EXPECT_EQ(result.code, 2) << message << ": " << result.err;
      EXPECT_THAT(result.err, HasSubstr(message));
      EXPECT_EQ(result.out, "");
    }
  }
}

TEST_F(GrammarArgumentsTest, HelpNamesEveryKind) {
  for (const char* command : {"sample", "explain"}) {
    const auto help = cli({"grammar", command, "--help"});
    EXPECT_EQ(help.code, 0);
    for (const char* part :
         {".gbnf", ".lark", ".regex", ".yaml", "--pattern", "--start", "configs/grammars/"}) {
      EXPECT_THAT(help.out, HasSubstr(part)) << command;
    }
  }
  EXPECT_THAT(cli({"grammar", "test", "--help"}).out, Not(HasSubstr("--pattern")));
}

}  // namespace
}  // namespace specdec
