// Prompts given as embeddings or as logits at hand, and biases, through every strategy that takes
// them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "core/error.h"
#include "core/prefix_store.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/beam_search.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/grammar_correction.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/rank_tree.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"
#include "tests/support/error_message.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/test_drafters.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Tokens = std::vector<Token>;
using Weights = std::shared_ptr<const TransformerWeights>;

constexpr int64_t kPartsVocab = 11;
constexpr double kImpossible = -std::numeric_limits<double>::infinity();

const Tokens kPartsPrompt = {3, 1, 4, 1, 5, 9, 2, 6, 1, 4, 1};

struct PartsRow {
  std::string name;
  std::function<std::unique_ptr<DecodingStrategy>(LanguageModel& target, Weights draft)> make;
};

void PrintTo(const PartsRow& one, std::ostream* out) { *out << one.name; }

std::unique_ptr<DecodingStrategy> speculative(LanguageModel& target,
                                              std::unique_ptr<Drafter> drafter,
                                              std::unique_ptr<DraftShape> shape) {
  return std::make_unique<SpeculativeDecoding>(
      target, std::move(drafter), std::make_unique<RejectionVerifier>(), std::move(shape));
}

std::unique_ptr<Drafter> drafting(Weights draft) {
  return std::make_unique<DraftModelDrafter>(
      std::make_unique<TransformerModel>(std::move(draft), paged_kv(4)));
}

std::vector<PartsRow> parts_rows() {
  return {{"autoregressive",
           [](LanguageModel& target, const Weights&) {
             return std::make_unique<AutoregressiveDecoding>(target);
           }},
          {"prompt_lookup",
           [](LanguageModel& target, const Weights&) {
             return speculative(target, std::make_unique<PromptLookupDrafter>(),
                                std::make_unique<FixedDraftLength>(4));
           }},
          {"draft_model",
           [](LanguageModel& target, Weights draft) {
             return speculative(target, drafting(std::move(draft)),
                                std::make_unique<FixedDraftLength>(3));
           }},
          {"draft_model_tree", [](LanguageModel& target, Weights draft) {
             return speculative(
                 target, drafting(std::move(draft)),
                 std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}, {1, 0}})));
           }}};
}

class RequestPartsTest : public testing::TestWithParam<PartsRow> {
 protected:
  Generation generate(LanguageModel& target, const std::function<void(Request&)>& change = {}) {
    CounterRandomness random(7);
    Request request{.prompt = kPartsPrompt,
                    .sampling = sampling_,
                    .stop = {.max_new_tokens = 24},
                    .random = random,
                    .on_tokens = [&](TokenSpan tokens) {
                      streamed_.insert(streamed_.end(), tokens.begin(), tokens.end());
                    }};
    if (change) {
      change(request);
    }
    streamed_.clear();
    Generation generation = GetParam().make(target, draft_)->generate(request);
    EXPECT_EQ(streamed_, generation.tokens);
    return generation;
  }

  void for_samplings(const std::function<void()>& test) {
    for (const double temperature : {0.0, 0.9}) {
      for (const LogitBias& bias : {LogitBias{}, LogitBias{{3, 1.5}, {7, kImpossible}}}) {
        sampling_ = {.temperature = temperature, .logit_bias = bias};
        SCOPED_TRACE(fmt::format("temperature {}, {} biases", temperature, bias.size()));
        test();
      }
    }
  }

  SamplingParams sampling_;
  Tokens streamed_;
  Weights weights_ = tiny_gemma(kPartsVocab);
  Weights draft_ = tiny_gemma(kPartsVocab, at::kDouble, 2);
};

TEST_P(RequestPartsTest, EmbeddingsOfThePromptAreThePrompt) {
  for (const Weights& weights : {weights_, Weights(tiny_gemma4("e", kPartsVocab)),
                                 Weights(tiny_gemma4("3n", kPartsVocab))}) {
    TransformerModel target(weights, paged_kv(4));
    for_samplings([&] {
      const Generation plain = generate(target);
      const Tensor embeddings = target.internals()->embed(token_tensor(kPartsPrompt));
      const Generation embedded =
          generate(target, [&](Request& request) { request.embeddings = embeddings; });
      EXPECT_EQ(embedded.tokens, plain.tokens);
      EXPECT_EQ(embedded.gaps, plain.gaps);
      EXPECT_EQ(embedded.steps.size(), plain.steps.size());
    });
  }
}

TEST_P(RequestPartsTest, OtherEmbeddingsAreReadInsteadOfTheTokens) {
  TransformerModel target(weights_, paged_kv(4));
  at::manual_seed(3);
  const Tensor embeddings = at::randn({std::ssize(kPartsPrompt), 16}, at::kDouble) * 4.0;
  Tensor logits = target.prefill_from_embeddings(embeddings).logits[0];
  Tokens expected;
  while (expected.size() < 24) {
    expected.push_back(static_cast<Token>(logits.argmax().item<int64_t>()));
    logits = target.decode_get_logits(TokenSpan(expected).last(1))[0];
  }
  const Generation found =
      generate(target, [&](Request& request) { request.embeddings = embeddings; });
  EXPECT_EQ(found.tokens, expected);
  EXPECT_NE(generate(target).tokens, expected);
}

TEST_P(RequestPartsTest, GenerationsFromEmbeddingsGoOn) {
  TransformerModel target(weights_, paged_kv(4));
  at::manual_seed(4);
  const Tensor embeddings = at::randn({std::ssize(kPartsPrompt), 16}, at::kDouble);
  const auto embed = [&](Request& request) { request.embeddings = embeddings; };
  const Generation whole = generate(target, embed);
  const Tokens begun(whole.tokens.begin(), whole.tokens.begin() + 9);
  target.truncate(0);
  const Generation rest = generate(target, [&](Request& request) {
    embed(request);
    request.resumed = begun;
  });
  EXPECT_EQ(rest.tokens, Tokens(whole.tokens.begin() + 9, whole.tokens.end()));
}

TEST_P(RequestPartsTest, LogitsAtHandSpareThePrefill) {
  TransformerModel target(weights_, paged_kv(4));
  for_samplings([&] {
    const Generation plain = generate(target);
    const Tensor logits = target.prefill_get_last_logits(kPartsPrompt);
    const Generation found =
        generate(target, [&](Request& request) { request.prompt_logits = logits; });
    EXPECT_EQ(found.tokens, plain.tokens);
    EXPECT_EQ(found.gaps, plain.gaps);
  });
}

TEST_P(RequestPartsTest, TextsThatWereNotReadByTokensAreNotRemembered) {
  TransformerModel target(weights_, paged_kv(4));
  PrefixStore prefixes(1 << 20);
  const Generation plain = generate(target);
  const auto with_store = [&](Request& request) { request.prefixes = &prefixes; };
  generate(target, [&](Request& request) {
    with_store(request);
    request.embeddings = at::ones({std::ssize(kPartsPrompt), 16}, at::kDouble);
  });
  const Tensor logits =
      target.prefill_from_embeddings(at::ones({std::ssize(kPartsPrompt), 16})).logits[0];
  generate(target, [&](Request& request) {
    with_store(request);
    request.prompt_logits = logits;
  });
  EXPECT_EQ(prefixes.entries(), 0);
  EXPECT_EQ(generate(target, with_store).tokens, plain.tokens);
  EXPECT_GT(prefixes.entries(), 0);
  EXPECT_EQ(generate(target, with_store).tokens, plain.tokens);
}

TEST_P(RequestPartsTest, MisuseIsNamed) {
  TransformerModel target(weights_, paged_kv(4));
  const auto message = [&](const std::function<void(Request&)>& change) {
    return error_message<ConfigError>([&] { generate(target, change); });
  };
  const Tensor embeddings = at::zeros({std::ssize(kPartsPrompt), 16});
  EXPECT_THAT(message([&](Request& request) { request.embeddings = embeddings.narrow(0, 0, 3); }),
              HasSubstr("should be numbers [11, 16]"));
  EXPECT_THAT(message([&](Request& request) {
                request.embeddings = at::zeros({11, 15});
              }),
              HasSubstr("should be numbers [11, 16]"));
  const Tensor logits = target.prefill_get_last_logits(kPartsPrompt);
  const Tokens begun = {1};
  EXPECT_THAT(message([&](Request& request) {
                request.prompt_logits = logits;
                request.embeddings = embeddings;
              }),
              HasSubstr("neither embeddings of it nor an output to go on with"));
  EXPECT_THAT(message([&](Request& request) {
                request.prompt_logits = logits;
                request.resumed = begun;
              }),
              HasSubstr("neither embeddings of it nor an output to go on with"));
  EXPECT_THAT(message([&](Request& request) { request.prompt_logits = logits.narrow(0, 0, 5); }),
              HasSubstr("prompt_logits should be [11]"));
  target.truncate(4);
  EXPECT_THAT(message([&](Request& request) { request.prompt_logits = logits; }),
              HasSubstr("a prompt of 11 tokens that the target keeps, but it keeps 4"));
  EXPECT_THAT(message([&](Request& request) {
                request.sampling.logit_bias = {{11, 1.0}};
              }),
              HasSubstr("logit_bias names token 11, but the model's vocabulary has 11"));
  EXPECT_THAT(message([&](Request& request) {
                request.sampling.logit_bias = {{1, NAN}};
              }),
              HasSubstr("logit_bias of token 1 is nan"));
}

INSTANTIATE_TEST_SUITE_P(Strategies, RequestPartsTest, testing::ValuesIn(parts_rows()),
                         [](const testing::TestParamInfo<PartsRow>& info) {
                           return info.param.name;
                         });

TEST(RequestPartsTest, APromptAtHandIsNotReadAgain) {
  FakeModel target(5, random_table(5, 1));
  const Tokens prompt = {1, 2, 3};
  const Tensor logits = target.prefill_get_last_logits(prompt);
  CounterRandomness random(1);
  AutoregressiveDecoding(target).generate({.prompt = prompt,
                                           .sampling = {},
                                           .stop = {.max_new_tokens = 4},
                                           .random = random,
                                           .prompt_logits = logits});
  EXPECT_EQ(target.forwards(), (std::vector<int64_t>{3, 1, 1, 1}));
}

TEST(RequestPartsTest, StrategiesSayWhatTheyCannotDo) {
  FakeModel target(5, random_table(5, 1));
  const Tokens prompt = {1, 2, 3};
  CounterRandomness random(1);
  const auto message = [&](DecodingStrategy& strategy, bool embedded, double temperature) {
    const Tensor logits = target.prefill_get_last_logits(prompt);
    Request request{.prompt = prompt,
                    .sampling = {.temperature = temperature},
                    .stop = {.max_new_tokens = 4},
                    .random = random};
    (embedded ? request.embeddings : request.prompt_logits) = embedded ? at::zeros({3, 2}) : logits;
    return error_message<ConfigError>([&] { strategy.generate(request); });
  };
  AutoregressiveDecoding plain(target);
  EXPECT_THAT(message(plain, true, 0.0), HasSubstr("this target reads tokens alone"));
  BeamSearchDecoding beams(target, {.num_beams = 2, .num_return_sequences = 2});
  EXPECT_THAT(message(beams, true, 0.0), HasSubstr("beam search reads the prompt by its tokens"));
  EXPECT_THAT(message(beams, false, 0.0), HasSubstr("leave prompt_logits out"));
  CorrectedDecoding corrected(std::make_unique<AutoregressiveDecoding>(target),
                              {.correction = Correction::kRejection, .samples = 3});
  EXPECT_THAT(message(corrected, false, 1.0), HasSubstr("leave prompt_logits out"));
  const auto script = [](TokenSpan) { return Tokens{1}; };
  const auto features = speculative(
      target, std::make_unique<ScriptedDrafter>(script, nullptr, Needs{.capture_layers = {1}}),
      std::make_unique<FixedDraftLength>(2));
  EXPECT_THAT(message(*features, false, 0.0), HasSubstr("hidden states of the prompt"));
  const auto tokens_only = speculative(target, std::make_unique<ScriptedDrafter>(script),
                                       std::make_unique<FixedDraftLength>(2));
  EXPECT_EQ(message(*tokens_only, false, 0.0), "no error");
}

TEST(RequestPartsTest, CorrectedSamplesAllReadTheEmbeddings) {
  TransformerModel target(tiny_gemma(4), paged_kv(4));
  const Tokens prompt = {1, 2, 1};
  const auto run = [&](const Tensor& embeddings) {
    CounterRandomness random(3);
    Request request{.prompt = prompt,
                    .sampling = {.temperature = 1.0},
                    .stop = {.max_new_tokens = 8, .end_ids = {3}},
                    .random = random,
                    .embeddings = embeddings};
    request.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "(a|b){1,4}");
    CorrectedDecoding decoding(std::make_unique<AutoregressiveDecoding>(target),
                               {.correction = Correction::kAsap, .samples = 5});
    const Generation generation = decoding.generate(request);
    EXPECT_EQ(generation.samples, 5);
    return generation;
  };
  const Generation plain = run({});
  EXPECT_FALSE(plain.tokens.empty());
  EXPECT_EQ(run(target.internals()->embed(token_tensor(prompt))).tokens, plain.tokens);
}

/// log Z and log-probabilities are those of the biased distribution.
TEST(LogitBiasTest, MassesUnderAGrammarAreThoseOfTheBiasedModel) {
  const LogitTable table = random_table(4, 3);
  const LogitBias bias = {{0, -1.0}, {2, 0.5}};
  FakeModel plain(4, table);
  FakeModel shifted(4, [&](TokenSpan history) {
    std::vector<double> logits = table(history);
    logits[0] -= 1.0;
    logits[2] += 0.5;
    return logits;
  });
  Task task{.prompt = {1, 2, 1},
            .sampling = {.temperature = 0.8},
            .stop = {.max_new_tokens = 8, .end_ids = {3}}};
  task.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "(a|b)a(a|b)*");
  const auto run = [&](FakeModel& target) {
    CounterRandomness random(5);
    return AutoregressiveDecoding(target).generate(task.request(random));
  };
  const Generation wanted = run(shifted);
  task.sampling.logit_bias = bias;
  const Generation found = run(plain);
  EXPECT_EQ(found.tokens, wanted.tokens);
  ASSERT_EQ(found.log_probs.size(), wanted.log_probs.size());
  for (size_t i = 0; i < found.log_probs.size(); ++i) {
    EXPECT_NEAR(found.log_probs[i], wanted.log_probs[i], 1e-12);
    EXPECT_NEAR(found.log_allowed[i], wanted.log_allowed[i], 1e-12);
  }
}

/// "ba" cannot be finished without "a", which the bias forbids.
TEST(LogitBiasTest, DeadEndsOfTheGrammarEndDraftsThatGetThere) {
  const double low = -5.0;
  const LogitTable wants_ab = [low](TokenSpan) { return std::vector<double>{0.0, 1.0, 4.0, low}; };
  const LogitTable wants_b = [low](TokenSpan) { return std::vector<double>{0.0, 4.0, 1.0, low}; };
  Task task{.prompt = {1},
            .sampling = {.logit_bias = {{0, kImpossible}}},
            .stop = {.max_new_tokens = 6, .end_ids = {3}}};
  task.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "ab(ba|abb)");
  for (const bool forced : {false, true}) {
    task.constraint.forced = forced;
    FakeModel target(4, wants_ab);
    const auto strategy = speculative(
        target, std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(4, wants_b)),
        std::make_unique<FixedDraftLength>(3));
    CounterRandomness random(1);
    const Generation found = strategy->generate(task.request(random));
    EXPECT_EQ(found.tokens, (Tokens{2, 2, 1}));
    AutoregressiveDecoding plain(target);
    EXPECT_EQ(plain.generate(task.request(random)).tokens, found.tokens);

    FakeModel stuck(4, wants_b);  // takes "b" where only "a" may follow
    for (const bool drafts : {false, true}) {
      const auto decoding =
          drafts ? speculative(
                       stuck,
                       std::make_unique<DraftModelDrafter>(std::make_unique<FakeModel>(4, wants_b)),
                       std::make_unique<FixedDraftLength>(3))
                 : std::make_unique<AutoregressiveDecoding>(stuck);
      EXPECT_THAT([&] { decoding->generate(task.request(random)); },
                  ThrowsMessage<Error>(HasSubstr("forbids (-inf) every token")));
    }
  }
}

}  // namespace
}  // namespace specdec
