#include "decoders/grammar_correction.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/error.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "grammar/grammar_matcher.h"
#include "tests/support/error_message.h"
#include "tests/support/letter_grammar.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {
namespace {

constexpr int64_t kPairsVocab = 4;
constexpr Token kPairsEnd = 3;

Task pairs_task() {
  static const auto grammar = letter_grammar({"a", "b", "ab", ""}, "(aab|b(a|b){0,2})");
  return {{3, 1, 0, 1},
          {.temperature = 1.0},
          {.max_new_tokens = 3, .end_ids = {kPairsEnd}},
          nullptr,
          {grammar}};
}

/// A target for which masking alone is far from the distribution: after "a" it wants "b", which the
/// grammar of pairs_task forbids there.
LogitTable misled_table() {
  return [](TokenSpan history) -> std::vector<double> {
    return history.back() == 0 ? std::vector<double>{0.0, 3.0, -1.0, 1.0}
                               : std::vector<double>{1.0, 1.0, -1.0, 0.0};
  };
}

/// The target's distribution given that the grammar ends the text, token by token from the
/// distributions without the grammar.
class ConditionalDistribution {
 public:
  ConditionalDistribution(const LogitTable& table, const Task& task)
      : table_(table), task_(task), place_(task.constraint.grammar), history_(task.prompt) {
    extend(1.0);
    for (auto& [output, mass] : distribution_) {
      mass /= total_;
    }
  }
  const SequenceDistribution& distribution() const { return distribution_; }
  /// Probability that the target ends a text of the grammar.
  double total() const { return total_; }

 private:
  void extend(double mass) {
    if (!output_.empty() && (output_.back() == kPairsEnd || place_.can_only_end())) {
      distribution_[output_] = mass;
      total_ += mass;
      return;
    }
    if (std::ssize(output_) == task_.stop.max_new_tokens) {
      return;
    }
    std::vector<double> next(kPairsVocab);
    const std::vector<double> logits = table_(history_);
    target_distribution(std::span<const double>(logits), history_, task_.sampling, next);
    for (Token token = 0; token < kPairsVocab; ++token) {
      if (place_.accept(token)) {
        output_.push_back(token);
        history_.push_back(token);
        extend(mass * next[static_cast<size_t>(token)]);
        output_.pop_back();
        history_.pop_back();
        place_.rollback(1);
      }
    }
  }

  const LogitTable& table_;
  const Task& task_;
  GrammarMatcher place_;
  std::vector<Token> history_, output_;
  SequenceDistribution distribution_;
  double total_ = 0.0;
};

/// The distribution of the outputs that were accepted.
SequenceDistribution accepted_distribution(DecodingStrategy& strategy, const Task& task) {
  return kept_distribution(exact_distribution(strategy, task));
}

double total_variation(const SequenceDistribution& a, const SequenceDistribution& b) {
  double sum = 0.0;
  for (const auto& [output, mass] : a) {
    const auto found = b.find(output);
    sum += std::abs(mass - (found == b.end() ? 0.0 : found->second));
  }
  for (const auto& [output, mass] : b) {
    sum += a.contains(output) ? 0.0 : mass;
  }
  return sum / 2.0;
}

std::unique_ptr<DecodingStrategy> plain(LanguageModel& target) {
  return std::make_unique<AutoregressiveDecoding>(target);
}

std::unique_ptr<DecodingStrategy> speculative(LanguageModel& target, uint64_t seed) {
  auto draft = std::make_unique<FakeModel>(kPairsVocab, random_table(kPairsVocab, seed));
  return std::make_unique<SpeculativeDecoding>(
      target, std::make_unique<DraftModelDrafter>(std::move(draft)),
      std::make_unique<RejectionVerifier>(), std::make_unique<FixedDraftLength>(2));
}

TEST(GrammarCorrectionTest, MaskingAloneHasAnotherDistribution) {
  const Task task = pairs_task();
  const LogitTable table = misled_table();
  FakeModel target(kPairsVocab, table);
  EXPECT_GT(total_variation(accepted_distribution(*plain(target), task),
                            ConditionalDistribution(table, task).distribution()),
            0.2);
}

TEST(GrammarCorrectionTest, RejectionGivesTheConditionalDistribution) {
  const Task task = pairs_task();
  for (const uint64_t seed : {7U, 8U, 9U}) {
    const LogitTable table = random_table(kPairsVocab, seed);
    FakeModel target(kPairsVocab, table);
    const ConditionalDistribution expected(table, task);
    CorrectedDecoding alone(plain(target), {Correction::kRejection, 2});
    EXPECT_LT(max_difference(accepted_distribution(alone, task), expected.distribution()), 1e-12)
        << seed;
    CorrectedDecoding drafted(speculative(target, seed + 50), {Correction::kRejection, 1});
    EXPECT_LT(max_difference(accepted_distribution(drafted, task), expected.distribution()), 1e-12)
        << seed;
    Task corrected = task;
    corrected.corrected = true;
    EXPECT_LT(max_difference(reference_distribution(table, corrected), expected.distribution()),
              1e-15)
        << seed;
    // One of two samples is accepted unless both are refused.
    const double refused = exact_distribution(alone, task).at(std::vector<Token>());
    EXPECT_NEAR(refused, std::pow(1.0 - expected.total(), 2.0), 1e-12) << seed;
  }
}

/// The distance from the conditional distribution after so many samples, every outcome enumerated.
double distance(const LogitTable& table, const Task& task, Correction correction, int64_t samples) {
  FakeModel target(kPairsVocab, table);
  CorrectedDecoding strategy(plain(target), {correction, samples});
  return total_variation(accepted_distribution(strategy, task),
                         ConditionalDistribution(table, task).distribution());
}

TEST(GrammarCorrectionTest, MoreSamplesComeNearerToTheConditionalDistribution) {
  const Task task = pairs_task();
  const LogitTable table = misled_table();
  double before = distance(table, task, Correction::kImportance, 1);
  EXPECT_GT(before, 0.2);
  for (const int64_t samples : {2, 3}) {
    const double now = distance(table, task, Correction::kImportance, samples);
    EXPECT_LT(now, before) << samples;
    before = now;
  }
}

TEST(GrammarCorrectionTest, AsapLearnsTheConditionalDistribution) {
  const Task task = pairs_task();
  const LogitTable table = misled_table();
  FakeModel target(kPairsVocab, table);
  const ConditionalDistribution expected(table, task);
  const auto distance_of_counts = [&](int64_t samples) {
    CorrectedDecoding strategy(plain(target), {Correction::kAsap, samples});
    SequenceDistribution distribution;
    for (const auto& [output, count] : sample_counts(strategy, task, 1500, 5)) {
      distribution[output] = static_cast<double>(count) / 1500.0;
    }
    return total_variation(distribution, expected.distribution());
  };
  const double alone = distance_of_counts(1);
  const double learned = distance_of_counts(24);
  EXPECT_LT(learned, alone / 4.0) << alone;
}

TEST(GrammarCorrectionTest, BoundsFallToTheProbabilityOfStayingInTheGrammar) {
  const Task task = pairs_task();
  const LogitTable table = misled_table();
  FakeModel target(kPairsVocab, table);
  FutureBounds bounds;
  EXPECT_EQ(bounds.bound({}), 1.0);
  double before = 1.0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    CounterRandomness random(seed);
    Request request = task.request(random);
    request.weights = &bounds;
    const Generation sample = plain(target)->generate(request);
    bounds.learn(sample, sample.stop_reason != StopReason::kMaxNewTokens);
    EXPECT_LE(bounds.bound({}), before + 1e-12);
    before = bounds.bound({});
  }
  EXPECT_NEAR(before, ConditionalDistribution(table, task).total(), 1e-9) << "all texts were seen";
}

TEST(GrammarCorrectionTest, NothingIsAcceptedWhereNoTextFits) {
  const LogitTable table = random_table(kPairsVocab, 7);
  FakeModel target(kPairsVocab, table);
  Task task = pairs_task();
  task.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "aaaaaa(a|b)");
  for (const Correction correction :
       {Correction::kRejection, Correction::kImportance, Correction::kAsap}) {
    CorrectedDecoding strategy(plain(target), {correction, 8});
    CounterRandomness random(3);
    const Generation generation = strategy.generate(task.request(random));
    EXPECT_EQ(generation.stop_reason, StopReason::kNoneAccepted);
    EXPECT_TRUE(generation.tokens.empty());
  }
}

TEST(GrammarCorrectionTest, SaysHowManySamplesItTook) {
  const Task task = pairs_task();
  const LogitTable table = random_table(kPairsVocab, 7);
  FakeModel target(kPairsVocab, table);
  CorrectedDecoding strategy(plain(target), {Correction::kImportance, 5});
  CounterRandomness random(3);
  std::vector<Token> streamed;
  Request request = task.request(random);
  request.on_tokens = [&](TokenSpan tokens) {
    streamed.insert(streamed.end(), tokens.begin(), tokens.end());
  };
  const Generation generation = strategy.generate(request);
  EXPECT_EQ(generation.samples, 5);
  EXPECT_EQ(streamed, generation.tokens) << "nothing is given on before it is chosen";
}

TEST(GrammarCorrectionTest, AsapCountsTheSamplesThatItDrew) {
  const LogitTable table = random_table(kPairsVocab, 7);
  FakeModel target(kPairsVocab, table);
  Task task = pairs_task();
  task.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "b{40}");
  CounterRandomness random(3);
  CorrectedDecoding strategy(plain(target), {Correction::kAsap, 8});
  const Generation none = strategy.generate(task.request(random));
  EXPECT_EQ(none.stop_reason, StopReason::kNoneAccepted);
  EXPECT_EQ(none.samples, 1) << "the only path reaches max_new_tokens: none is left";
  task.constraint.grammar = letter_grammar({"a", "b", "ab", ""}, "b(a|b)");
  EXPECT_EQ(strategy.generate(task.request(random)).samples, 8);
}

TEST(GrammarCorrectionTest, RefusesWhatItCannotCorrect) {
  const LogitTable table = random_table(kPairsVocab, 7);
  FakeModel target(kPairsVocab, table);
  EXPECT_THROW(CorrectedDecoding(plain(target), {Correction::kAsap, 0}), ConfigError);
  CorrectedDecoding strategy(plain(target), {Correction::kRejection, 4});
  const auto refusal = [&](const std::function<void(Task&)>& change) {
    Task task = pairs_task();
    change(task);
    CounterRandomness random(1);
    return error_message<ConfigError>([&] { (void)strategy.generate(task.request(random)); });
  };
  EXPECT_THAT(refusal([](Task& task) { task.sampling.temperature = 0.0; }),
              testing::HasSubstr("temperature above 0"));
  EXPECT_THAT(refusal([](Task& task) { task.sampling.top_k = 2; }), testing::HasSubstr("top_k"));
  EXPECT_THAT(refusal([](Task& task) { task.constraint = {}; }), testing::HasSubstr("grammar"));
  class Unchanged final : public DistributionWeights {
    void weigh(TokenSpan /*output*/, std::span<double> /*distribution*/) const override {}
  };
  const Unchanged weights;
  Task task = pairs_task();
  CounterRandomness random(1);
  Request request = task.request(random);
  request.weights = &weights;
  EXPECT_THAT(error_message<ConfigError>([&] { (void)strategy.generate(request); }),
              testing::HasSubstr("leave weights out"));
}

}  // namespace
}  // namespace specdec
