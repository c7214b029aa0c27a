// Eight requests with grammars at once, speculatively: each gets the tokens that it gets alone.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/row_view.h"
#include "core/transformer/heads/eagle_head.h"
#include "core/transformer/heads/feature_model.h"
#include "decoders/drafters/feature_drafter.h"
#include "decoders/shapes/draft_growth.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "grammar/compiled_grammar.h"
#include "kv/paged_kv.h"
#include "tests/support/grammar_vocabularies.h"
#include "tests/support/locked_model.h"
#include "tests/support/sequence_distribution.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using Grammar = std::shared_ptr<const CompiledGrammar>;

constexpr int64_t kRequests = 8;
constexpr int64_t kNewTokens = 40;

struct ConcurrentCase {
  std::string target;  ///< kind, see tiny_gemma4: two groups of layers, each with a page table
  KvFormat format = KvFormat::kNative;
  at::ScalarType dtype = at::kDouble;
};

void PrintTo(const ConcurrentCase& one, std::ostream* out) {
  *out << one.target << (one.format == KvFormat::kNative ? "" : "_bfloat16");
}

class ConcurrentRequestsTest : public testing::TestWithParam<ConcurrentCase> {
 protected:
  ConcurrentRequestsTest() {
    const std::vector<std::string> schemas = {
        R"({"type": "object", "additionalProperties": {"type": "integer"}})",
        R"({"type": "array", "items": {"type": "string", "maxLength": 8}})",
        R"({"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]})",
        R"({"type": "string", "minLength": 30})"};
    for (const std::string& schema : schemas) {
      grammars_.push_back(compile_json_schema(vocabulary_, schema));
    }
  }

  static KvStoreFactory cache() { return paged_kv(4, GetParam().format); }

  /// The request's grammar is shared with another one's; every second one samples.
  Task task(int64_t request) const {
    Task task{.prompt = {}, .stop = {.max_new_tokens = kNewTokens, .end_ids = {kTinyEnd}}};
    for (int64_t i = 0; i < 3 + 5 * request; ++i) {
      task.prompt.push_back(static_cast<Token>((7 * i + request) % vocabulary_->vocab_size()));
    }
    task.sampling.temperature = request % 2 == 0 ? 0.0 : 1.0;
    task.constraint.grammar = grammars_[static_cast<size_t>(request) % grammars_.size()];
    return task;
  }

  Generation generate(LanguageModel& target, int64_t request) const {
    at::set_num_threads(1);  // of the thread that calls; the tensors are tiny
    std::vector<std::unique_ptr<LanguageModel>> modules;
    modules.push_back(make_eagle_model(head_, weights_, cache()));
    SpeculativeDecoding decoding(
        target,
        std::make_unique<FeatureDrafter>(
            std::move(modules), FeatureDrafterOptions{.capture_layers = eagle_capture_layers(
                                                          head_->config, weights_->config),
                                                      .hidden_size = weights_->config.hidden_size}),
        std::make_unique<RejectionVerifier>(),
        std::make_unique<StaticTreeShape>(tree_of_widths(std::vector<int64_t>{2, 1, 1}, 16)));
    CounterRandomness random(static_cast<uint64_t>(100 + request));
    const Task asked = task(request);
    return decoding.generate(asked.request(random));
  }

  std::vector<Generation> alone() const {
    std::vector<Generation> all;
    for (int64_t request = 0; request < kRequests; ++request) {
      TransformerModel model(weights_, cache());
      all.push_back(generate(model, request));
    }
    return all;
  }

  /// Each request on a thread of its own and on the model that `target` gives it.
  std::vector<Generation> at_once(const std::function<LanguageModel&(int64_t)>& target) const {
    std::vector<Generation> all(kRequests);
    std::vector<std::thread> threads;
    for (int64_t request = 0; request < kRequests; ++request) {
      threads.emplace_back(
          [&, request] { all[static_cast<size_t>(request)] = generate(target(request), request); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return all;
  }

  void expect_same(const std::vector<Generation>& found, const std::vector<Generation>& expected) {
    int64_t drafted = 0;
    int64_t accepted = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
      const Grammar& grammar = grammars_[i % grammars_.size()];
      StateId state = grammar->start();
      for (const Token token : found[i].tokens) {
        state = grammar->next(state, token);
        ASSERT_NE(state, Automaton::kDead) << i;
      }
      for (const StepStatistics& step : found[i].steps) {
        drafted += step.drafted;
        accepted += step.accepted;
      }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_GT(drafted, accepted);
  }

  std::shared_ptr<GrammarVocabulary> vocabulary_ = tiny_vocabulary(3, 40);
  std::vector<Grammar> grammars_;
  std::shared_ptr<TransformerWeights> weights_ =
      tiny_gemma4(GetParam().target, vocabulary_->vocab_size(), GetParam().dtype);
  std::shared_ptr<EagleHead> head_ =
      random_eagle_head(make_eagle_config(EagleVersion::kEagle3, LayerStyle::kGemma4, *weights_),
                        {.seed = 5, .dtype = GetParam().dtype});
};

TEST_P(ConcurrentRequestsTest, ModelsOfSharedWeightsAndGrammars) {
  std::vector<std::unique_ptr<TransformerModel>> models;
  for (int64_t request = 0; request < kRequests; ++request) {
    models.push_back(std::make_unique<TransformerModel>(weights_, cache()));
  }
  expect_same(at_once([&](int64_t request) -> LanguageModel& {
                return *models[static_cast<size_t>(request)];
              }),
              alone());
}

/// The requests' steps alternate in one cache: drafts of one are pending while others commit.
TEST_P(ConcurrentRequestsTest, RowsOfOneModel) {
  TransformerModel model(weights_, cache());
  LockedModel shared(model);
  std::vector<std::unique_ptr<RowView>> views;
  for (int64_t request = 0; request < kRequests; ++request) {
    views.push_back(std::make_unique<RowView>(shared, shared.open()));
  }
  expect_same(
      at_once([&](int64_t row) -> LanguageModel& { return *views[static_cast<size_t>(row)]; }),
      alone());
}

INSTANTIATE_TEST_SUITE_P(All, ConcurrentRequestsTest,
                         testing::Values(ConcurrentCase{"dense"}, ConcurrentCase{"e"},
                                         ConcurrentCase{"moe"},
                                         ConcurrentCase{"dense", KvFormat::kBFloat16, at::kFloat}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace specdec
