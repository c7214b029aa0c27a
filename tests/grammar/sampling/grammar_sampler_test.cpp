#include "grammar/sampling/grammar_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/tokenizers/tokenizer.h"
#include "grammar/grammar_source.h"

namespace specdec {
namespace {

using Tokens = std::vector<Token>;

const std::vector<std::pair<GrammarKind, std::string>> kSampledGrammars = {
    {GrammarKind::kJsonSchema, R"({"type": "object", "properties": {"name": {"type": "string"},
        "tag": {"enum": ["the red one", "the green one"]}, "sizes": {"type": "array",
        "items": {"type": "integer"}}}, "required": ["name", "tag", "sizes"],
        "additionalProperties": {"type": "boolean"}})"},
    {GrammarKind::kJsonSchema, "{}"},
    {GrammarKind::kRegex, "(the|then|there) [a-z]{0,9} (office|off)"},
    {GrammarKind::kGbnf, R"g(root ::= "(" root ")" | [a-z]+ " and " root | "x")g"},
};

class GrammarSamplerTest : public testing::Test {
 protected:
  static const Tokenizer& tokenizer() {
    static const auto loaded = load_tokenizer(SPECDEC_SOURCE_DIR "/models/target");
    return *loaded;
  }

  static std::shared_ptr<const CompiledGrammar> compile(GrammarKind kind, const std::string& text,
                                                        Cuts cuts) {
    static const auto vocabulary = [] {
      auto made = make_grammar_vocabulary(tokenizer());
      made->learn_cuts(tokenizer());
      return made;
    }();
    GrammarSource source;
    source.kind = kind;
    source.text = text;
    source.cuts = cuts;
    return compile_grammar(vocabulary, source);
  }

  static std::vector<Tokens> samples(const std::shared_ptr<const CompiledGrammar>& grammar,
                                     const GrammarSampleOptions& options) {
    std::vector<Tokens> made;
    for (uint32_t i = 0; i < 12; ++i) {
      CounterRandomness random(7, i);
      made.push_back(sample_grammar(grammar, options, random).value_or(Tokens()));
    }
    return made;
  }
};

TEST_F(GrammarSamplerTest, TokensAreOfTheGrammarAndNotTooMany) {
  for (const Cuts cuts : {Cuts::kAny, Cuts::kCanonical}) {
    for (const auto& [kind, text] : kSampledGrammars) {
      const auto grammar = compile(kind, text, cuts);
      for (const Tokens& tokens : samples(grammar, {.max_tokens = 80, .names = {"tag", "other"}})) {
        StateId state = grammar->start();
        for (const Token token : tokens) {
          state = grammar->next(state, token);
        }
        EXPECT_TRUE(grammar->is_complete(state)) << text << ": " << tokenizer().decode(tokens);
        EXPECT_LE(tokens.size(), 80U);
      }
    }
  }
}

TEST_F(GrammarSamplerTest, OfCanonicalGrammarsTheyAreCutAsTheTokenizerCutsThem) {
  for (const auto& [kind, text] : kSampledGrammars) {
    const auto grammar = compile(kind, text, Cuts::kCanonical);
    for (const Tokens& tokens : samples(grammar, {.max_tokens = 80, .names = {"tag", "other"}})) {
      EXPECT_FALSE(tokens.empty()) << text;
      EXPECT_EQ(tokens, tokenizer().encode(tokenizer().decode(tokens)));
    }
  }
}

/// All calls for a text together, however short each is.
TEST_F(GrammarSamplerTest, ATextMayTakeOnlySoLong) {
  const auto grammar = compile(GrammarKind::kJsonSchema, "{}", Cuts::kAny);
  CounterRandomness random(7, 0);
  try {
    (void)sample_grammar(grammar, {.max_tokens = 80, .max_seconds = 0}, random);
    FAIL();
  } catch (const GrammarError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("more than 0 s; raise max_seconds"));
  }
}

}  // namespace
}  // namespace specdec
