// Drafters without a model as a config names them: their corpora, and what is refused before
// anything is loaded.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "core/error.h"
#include "experiments/components/corpus.h"
#include "experiments/run/experiment_config.h"
#include "tests/experiments/run/text_model.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::Not;
using Documents = std::vector<std::vector<Token>>;

const std::string kTarget = SPECDEC_SOURCE_DIR "/tests/data/gemma3-a";  // 512 tokens, no tokenizer
constexpr const char* kText = "First line of a text.\nThe second line.\nThe third and last line.\n";

class BuiltinDraftersTest : public testing::Test {
 protected:
  BuiltinDraftersTest() {
    folder_.write("p.jsonl", "{\"tokens\": [2, 5]}\n");
    folder_.write("ok.jsonl", "{\"tokens\": [1, 2, 3]}\n\n{\"tokens\": []}\n{\"tokens\": [511]}\n");
    folder_.write("text.txt", kText);
  }

  /// A config with one speculative strategy; the drafter is in its line 4.
  ExperimentPlan load(const std::string& drafter, const std::string& shape = "draft_length: 3",
                      const std::string& verifier = "") const {
    const auto text = fmt::format(
        "model: {{weights: {}}}\nprompts: {{file: p.jsonl}}\nstrategies:\n"
        "  - {{type: speculative, {}, drafter: {{{}}}{}}}\n",
        kTarget, shape, drafter, verifier);
    return load_experiment(folder_.write("c.yaml", text), {}, components_);
  }
  /// What follows the drafter's path in the message.
  template <class... Args>
  std::string mistake(const Args&... args) const {
    return error_message<ConfigError>([&] { load(args...); });
  }

  /// The documents of a corpus, written as YAML, for the target in `model`.
  Documents read(const std::string& sources, const std::string& model) const {
    const auto errors = std::make_shared<ConfigErrors>();
    const ConfigNode node(parse_yaml("corpus: " + sources, "c.yaml", false), errors,
                          folder_.path());
    ModelCatalog models;
    const RunPlan plan{.components = components_,
                       .target = &models.read(model),
                       .models = models,
                       .sampling = SamplingParams()};
    auto documents = read_corpus(node, "corpus", plan, true);
    errors->throw_if_any();
    return documents;
  }

  TemporaryFolder folder_;
  Components components_ = builtin_components();
};

TEST_F(BuiltinDraftersTest, ACorpusOfEarlierGenerationsNeedsNoTokenizer) {
  EXPECT_EQ(read("[{file: ok.jsonl}]", kTarget), (Documents{{1, 2, 3}, {511}}));
  EXPECT_EQ(read("[{file: ok.jsonl}, {file: ok.jsonl, held_out: 0.5}]", kTarget),
            (Documents{{1, 2, 3}, {511}, {1, 2, 3}}));
  const auto plan = load("type: suffix, corpus: [{file: ok.jsonl}]");
  EXPECT_THAT(plan.yaml, HasSubstr("held_out: 0"));
  EXPECT_THAT(plan.yaml, HasSubstr("min_probability: 0.1"));
  EXPECT_NO_THROW(load("type: corpus_bigram, corpus: [{file: ok.jsonl}]"));
}

TEST_F(BuiltinDraftersTest, OfAnswersACorpusHoldsNoPrompts) {
  folder_.write("answers.jsonl",
                "{\"tokens\": [1, 2, 3, 4], \"answer\": 2}\n{\"tokens\": [], \"answer\": 0}\n"
                "{\"tokens\": [5], \"answer\": 0}\n");
  EXPECT_EQ(read("[{file: answers.jsonl}]", kTarget), (Documents{{3, 4}, {5}}));
}

TEST_F(BuiltinDraftersTest, ATextIsOneDocumentWithoutItsHeldOutEnd) {
  const auto model = (folder_.path() / "model").string();
  write_text_model(model);
  ModelCatalog models;
  const auto& tokenizer = *models.read(model).tokenizer;
  const std::string text = kText;
  EXPECT_EQ(read("[{file: text.txt}]", model), (Documents{tokenizer.encode(text)}));
  // A half of the text ends within the second line, which stays.
  EXPECT_EQ(read("[{file: text.txt, held_out: 0.5}]", model),
            (Documents{tokenizer.encode(text.substr(0, text.find("The third")))}));
  folder_.write("texts.jsonl", "{\"a\": 1}\n{\"b\": 2}\n");
  EXPECT_EQ(read("[{file: texts.jsonl}]", model),
            (Documents{tokenizer.encode("{\"a\": 1}"), tokenizer.encode("{\"b\": 2}")}));
}

TEST_F(BuiltinDraftersTest, RefusesCorporaWithTheirPlace) {
  folder_.write("empty.jsonl", "");
  folder_.write("blank.jsonl", "\n  \n");
  folder_.write("large.jsonl", "{\"tokens\": [1]}\n{\"tokens\": [5, 512]}\n");
  folder_.write("word.jsonl", "{\"tokens\": [\"x\"]}\n");
  folder_.write("number.jsonl", "{\"tokens\": 5}\n");
  folder_.write("behind.jsonl", "{\"tokens\": [5], \"answer\": 2}\n");
  folder_.write("where.jsonl", "{\"tokens\": [5], \"answer\": \"end\"}\n");
  folder_.write("twice.jsonl", "{\"tokens\": [1], \"tokens\": [2]}\n");
  folder_.write("cut.jsonl", "{\"tokens\": [1]}\n{\"tokens\": [1, 2\n");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[{file: nowhere.jsonl}]", "corpus[0].file: 'nowhere.jsonl' does not exist"},
      {"[{file: empty.jsonl}]", "empty.jsonl: holds no tokens"},
      {"[{file: blank.jsonl}]", "blank.jsonl: holds no tokens"},
      {"[{file: ok.jsonl}, {file: large.jsonl}]", "line 2: 512 is no token of the target"},
      {"[{file: word.jsonl}]", "line 1: \"x\" is no token of the target, which has 512"},
      {"[{file: number.jsonl}]", "line 1: 'tokens' is no list of ids"},
      {"[{file: behind.jsonl}]", "line 1: 'answer' is 2; it is the place from 0 to 1 where"},
      {"[{file: where.jsonl}]", "line 1: 'answer' is \"end\"; it is the place"},
      {"[{file: cut.jsonl}]", "line 2: not valid JSON at column"},
      {"[{file: twice.jsonl}]", "line 1: the key \"tokens\" stands twice in one object; of a"},
      {"[{file: text.txt}]", "gemma3-a has no tokenizer (tokenizer.model or tokenizer.json)"},
      {"[]", ".corpus: the list is empty; give files, such as"},
      {"ok.jsonl", ".corpus: expected a list, found 'ok.jsonl'"},
      {"[{file: ok.jsonl, held_out: 1}]", "corpus[0].held_out: 1 is not between 0 and 0.99"},
      {"[{fil: ok.jsonl}]", "corpus[0].fil: unknown key; did you mean 'file'?"},
  };
  for (const std::string type : {"suffix", "corpus_bigram"}) {
    for (const auto& [sources, expected] : cases) {
      const auto message = mistake(fmt::format("type: {}, corpus: {}", type, sources));
      EXPECT_THAT(message, HasSubstr(expected)) << type << " " << sources;
      EXPECT_THAT(message, HasSubstr("c.yaml:4: strategies[0].drafter.corpus")) << message;
    }
  }
  EXPECT_THAT(mistake("type: corpus_bigram"),
              HasSubstr("drafter: the key 'corpus' is missing; give text files, such as [{file: "));
}

TEST_F(BuiltinDraftersTest, RefusesOptionsOutOfRange) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"type: suffix, min_match: 0", "min_match: 0 is not between 1 and 1024"},
      {"type: suffix, factor: -1", "factor: -1 is not between 0 and 1024"},
      {"type: suffix, offset: .inf", "offset: expected a finite number"},
      {"type: suffix, min_probability: 2", "min_probability: 2 is not between 0 and 1"},
      {"type: suffix, max_depth: 0", "max_depth: 0 is not between 1"},
      {"type: corpus_bigram, corpus: [{file: ok.jsonl}], min_probability: 1.5",
       "min_probability: 1.5 is not between 0 and 1"},
      {"type: recycling, candidates: 0", "candidates: 0 is not between 1 and 1024"},
      {"type: recycling, keep: true", "keep: is now called 'persist'"},
      {"type: recycling, persist: maybe", "persist: expected true or false, found 'maybe'"},
      {"type: lookahead, window: 0", "window: 0 is not between 1"},
      {"type: lookahead, ngram: 1", "ngram: 1 is not between 2"},
      {"type: lookahead, guesses: 0", "guesses: 0 is not between 1"},
      {"type: lookahead, pool_from_prompt: 3", "pool_from_prompt: expected true or false"},
      {"type: recycling, candidate: 3", "candidate: unknown key; did you mean 'candidates'?"},
  };
  for (const auto& [drafter, expected] : cases) {
    EXPECT_THAT(mistake(drafter, "tree: {type: dynamic, depth: 4}"),
                HasSubstr("c.yaml:4: strategies[0].drafter." + expected))
        << drafter;
  }
}

TEST_F(BuiltinDraftersTest, RefusesDrawnSiblingsUnderATreeThatTakesTheBest) {
  const auto model = "type: draft_model, weights: " + kTarget;
  const std::string expected = "drafter.sample: is true, and this tree leaves nodes out";
  EXPECT_THAT(mistake(model + ", sample: true", "tree: {type: dynamic}"), HasSubstr(expected));
  EXPECT_THAT(mistake("type: self, layers: 1, sample: true", "tree: {type: dynamic}"),
              HasSubstr(expected));
  EXPECT_NO_THROW(load(model + ", sample: false", "tree: {type: dynamic, depth: 4}"));
  EXPECT_NO_THROW(load(model + ", sample: true", "tree: {type: static, widths: [2, 1]}"));
}

TEST_F(BuiltinDraftersTest, RefusesCascadesThatCannotWork) {
  const auto model = "type: draft_model, weights: " + kTarget;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ": the key 'drafters' is missing; give a list"},
      {", drafters: []", ".drafters: the list is empty; give at least one drafter"},
      {", drafters: [{type: sufix}]",
       ".drafters[0]: unknown type 'sufix'; did you mean 'suffix'? "},
      {", drafters: [{type: suffix, min_tokens: 0}]", ".drafters[0].min_tokens: 0 is not between"},
      {", drafters: [{type: suffix, min_match: 0}]", ".drafters[0].min_match: 0 is not between"},
      {", drafters: [{type: suffix, min_tokens: 3, max_tokens: 2}]",
       ".drafters[0].max_tokens: 2 is fewer than min_tokens (3)"},
      {", min_tokens: 2, drafters: [{type: suffix}]", ".min_tokens: unknown key"},
      {", drafters: [{type: suffix}, {" + model + ", sample: true, min_tokens: 2}]",
       ".drafters[1].min_tokens: 2 would drop drafts whose tokens were drawn"},
  };
  for (const auto& [drafters, expected] : cases) {
    EXPECT_THAT(mistake("type: cascade" + drafters),
                HasSubstr("c.yaml:4: strategies[0].drafter" + expected))
        << drafters;
  }
  EXPECT_NO_THROW(load("type: cascade, drafters: [{type: suffix, min_tokens: 2}, {" + model +
                       ", sample: false, min_tokens: 2}]"));
  EXPECT_NO_THROW(load("type: cascade, drafters: [{" + model + ", sample: true}]"));
}

TEST_F(BuiltinDraftersTest, LookaheadNeedsATreeWithRoomForItsWindow) {
  const auto refused = HasSubstr("c.yaml:4: strategies[0].drafter: lookahead drafts a window");
  const std::string lookahead = "type: lookahead";
  for (const std::string chain :
       {"draft_length: 8", "draft_length: {type: heuristic}", "draft_length: {type: adaptive}",
        "tree: {type: static, paths: [[0], [0, 0]]}",
        "tree: {type: cost_aware, max_depth: 4, branches: 1}"}) {
    EXPECT_THAT(mistake(lookahead, chain), refused) << chain;
    EXPECT_THAT(mistake(lookahead, chain), HasSubstr("a chain is all that is allowed")) << chain;
  }
  for (const std::string narrow :
       {"tree: {type: static, widths: [2, 2]}", "tree: {type: dynamic, depth: 4, top_k: 2}",
        "tree: {type: cost_aware, max_depth: 4, branches: 2}",
        "tree: {type: optimal, acceptance: [0.6, 0.2], nodes: 8, depth: 4}"}) {
    EXPECT_THAT(mistake(lookahead, narrow), refused) << narrow;
    EXPECT_THAT(mistake(lookahead, narrow), HasSubstr("at least 3 children a node")) << narrow;
    EXPECT_NO_THROW(load("type: lookahead, ngram: 2", narrow)) << narrow;
  }
  EXPECT_NO_THROW(load(lookahead, "tree: {type: dynamic, depth: 4, top_k: 3}"));
  EXPECT_NO_THROW(load(lookahead, "tree: {type: static, widths: [3, 1]}"));
  EXPECT_THAT(mistake("type: cascade, drafters: [{type: lookahead}]"),
              HasSubstr("strategies[0].drafter.drafters[0]: lookahead drafts a window"));
}

TEST_F(BuiltinDraftersTest, ATreeWithoutNodesIsAnError) {
  EXPECT_THAT(mistake("type: suffix", "tree: {type: static}"), HasSubstr("is given by 'paths'"));
}

TEST_F(BuiltinDraftersTest, BlockVerificationNeedsAChain) {
  const std::string block = ", verifier: {type: block}";
  const std::string drafter = "type: suffix";
  EXPECT_THAT(mistake(drafter, "tree: {type: dynamic, depth: 4}", block),
              HasSubstr("c.yaml:4: strategies[0].verifier: block verification takes chains only"));
  EXPECT_NO_THROW(load(drafter, "draft_length: 4", block));
  EXPECT_NO_THROW(load(drafter, "tree: {type: cost_aware, max_depth: 4, branches: 1}", block));
}

}  // namespace
}  // namespace specdec
