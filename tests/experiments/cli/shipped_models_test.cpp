// The shipped pair: loads, is small enough, and the promises hold on real weights, not only on
// fakes.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/families/gemma/assistant.h"
#include "core/families/model.h"
#include "core/tokenizers/tokenizer.h"
#include "core/transformer/heads/drafting_functions.h"
#include "core/transformer/transformer_model.h"
#include "decoders/analysis/sequence_distribution.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/assistant.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/shapes/static_tree.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/block.h"
#include "decoders/verifiers/exact_match.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

fs::path models() { return fs::path(SPECDEC_SOURCE_DIR) / "models"; }

std::shared_ptr<const TransformerWeights> load_float(const std::string& name) {
  at::set_num_threads(1);
  LoadOptions options;
  options.dtype = at::kFloat;
  return load_model(models() / name, options);
}

class ShippedModelsTest : public testing::Test {
 protected:
  std::unique_ptr<DecodingStrategy> speculative(std::unique_ptr<Drafter> drafter,
                                                std::unique_ptr<Verifier> verifier,
                                                int64_t length) {
    return std::make_unique<SpeculativeDecoding>(target_, std::move(drafter), std::move(verifier),
                                                 std::make_unique<FixedDraftLength>(length));
  }
  std::unique_ptr<Drafter> draft_model() const {
    return std::make_unique<DraftModelDrafter>(
        std::make_unique<TransformerModel>(draft_weights_, paged_kv()));
  }
  std::vector<Token> prompt(const std::string& text) const {
    std::vector<Token> tokens = tokenizer_->encode(text);
    tokens.insert(tokens.begin(), *tokenizer_->bos());
    return tokens;
  }

  std::shared_ptr<const TransformerWeights> target_weights_ = load_float("target");
  std::shared_ptr<const TransformerWeights> draft_weights_ = load_float("draft");
  TransformerModel target_{target_weights_, paged_kv()};
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(models() / "target");
};

TEST_F(ShippedModelsTest, SizesAndVocabulary) {
  uintmax_t bytes = 0;
  for (const char* name : {"target", "draft"}) {
    for (const auto& file : fs::directory_iterator(models() / name)) {
      bytes += file.file_size();
    }
  }
  EXPECT_LT(bytes, 12U * 1000 * 1000);
  std::string reason;
  EXPECT_TRUE(same_vocabulary(*tokenizer_, *load_tokenizer(models() / "draft"), reason)) << reason;
  EXPECT_EQ(tokenizer_->vocab_size(), target_.vocab_size());
}

TEST_F(ShippedModelsTest, BothTokenizerFilesGiveTheSameIds) {
  const auto json = load_tokenizer(models() / "target" / "tokenizer.json");
  for (const std::string text :
       {"Fellow citizens of the Senate,", "ROMEO:\nBut, soft!\n\n  what light",
        R"({"name": "Ada", "age": 36, "tags": []})", "na\xC3\xAFve \xF0\x9F\x98\x80\t\r\n",
        "<start_of_turn>user\nHi<end_of_turn>"}) {
    EXPECT_EQ(tokenizer_->encode(text), json->encode(text)) << text;
    EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(text)), text);
  }
}

TEST_F(ShippedModelsTest, GreedySpeculationGivesGreedyTokens) {
  CounterRandomness random(1);
  AutoregressiveDecoding plain(target_);
  const auto with_draft = speculative(draft_model(), std::make_unique<ExactMatchVerifier>(), 5);
  const auto with_lookup = speculative(std::make_unique<PromptLookupDrafter>(),
                                       std::make_unique<ExactMatchVerifier>(), 8);
  for (const char* text : {"The people of the United States", "ROMEO:", "{\"name\":"}) {
    const auto tokens = prompt(text);
    Request request{.prompt = tokens, .sampling = {}, .stop = {}, .random = random};
    request.stop.max_new_tokens = 150;
    const auto wanted = plain.generate(request).tokens;
    EXPECT_EQ(with_draft->generate(request).tokens, wanted) << text;
    EXPECT_EQ(with_lookup->generate(request).tokens, wanted) << text;
  }
}

/// With a checkpoint of every token, of some, and of none within the text.
TEST_F(ShippedModelsTest, ARecurrentDraftIsTakenBackToItsCheckpoints) {
  CounterRandomness random(1);
  AutoregressiveDecoding plain(target_);
  const auto weights = load_float("recurrent_draft");
  ASSERT_TRUE(is_recurrent(weights->plan.front()));
  const auto tokens = prompt("The people of the United States");
  Request request{.prompt = tokens, .sampling = {}, .stop = {}, .random = random};
  request.stop.max_new_tokens = 60;
  const auto wanted = plain.generate(request).tokens;
  for (const int64_t every : {1, 5, 1000}) {
    const auto cache = [every](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
      return make_cache(layers, {.dtype = options.dtype,
                                 .max_length = options.max_length,
                                 .states = {.every = every, .most_checkpoints = 8}});
    };
    for (const bool tree : {false, true}) {
      std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(3);
      if (tree) {
        shape =
            std::make_unique<StaticTreeShape>(tree_of_paths({{0}, {1}, {0, 0}, {1, 0}, {0, 0, 0}}));
      }
      SpeculativeDecoding decoding(
          target_,
          std::make_unique<DraftModelDrafter>(std::make_unique<TransformerModel>(weights, cache)),
          std::make_unique<ExactMatchVerifier>(), std::move(shape));
      const Generation generation = decoding.generate(request);
      EXPECT_EQ(generation.tokens, wanted) << every << (tree ? " tree" : " chain");
      int64_t accepted = 0;
      int64_t rejected = 0;
      for (const StepStatistics& step : generation.steps) {
        accepted += step.accepted;
        rejected += step.drafted - step.accepted;
      }
      EXPECT_GT(accepted, 0);
      EXPECT_GT(rejected, 0);
    }
  }
}

TEST_F(ShippedModelsTest, SampledSpeculationHasTheTargetsDistributionExactly) {
  Task task;
  task.prompt = prompt("The people of");
  task.sampling.temperature = 1.0;
  task.sampling.top_k = 3;
  task.stop.max_new_tokens = 3;
  AutoregressiveDecoding plain(target_);
  const SequenceDistribution wanted = exact_distribution(plain, task);
  const auto decoding = speculative(draft_model(), std::make_unique<RejectionVerifier>(), 2);
  EXPECT_EQ(wanted.size(), 27U);
  EXPECT_LT(max_difference(exact_distribution(*decoding, task), wanted), 1e-12);
}

TEST_F(ShippedModelsTest, SampledSpeculationPassesChiSquare) {
  Task task;
  task.prompt = prompt("My lord, I");
  task.sampling.temperature = 0.8;
  task.sampling.top_k = 8;
  task.stop.max_new_tokens = 2;
  AutoregressiveDecoding plain(target_);
  const SequenceDistribution distribution = exact_distribution(plain, task);
  const auto decoding = speculative(draft_model(), std::make_unique<RejectionVerifier>(), 3);
  const ChiSquare test = chi_square(sample_counts(*decoding, task, 3000, 7), distribution);
  EXPECT_GT(test.p_value, 0.001) << "chi-square " << test.statistic << " of " << test.degrees;
  EXPECT_GT(test.degrees, 5);
}

/// The tiny Gemma 4 and its assistant, whose ordered head scores some clusters of tokens only.
class ShippedGemma4Test : public testing::Test {
 protected:
  std::unique_ptr<DecodingStrategy> assisted(std::unique_ptr<Verifier> verifier, int64_t length,
                                             CentroidFill fill = CentroidFill::kBelowMinimum) {
    const LoadedAssistant loaded =
        load_assistant(models() / "gemma4/assistant", *weights_, at::kFloat);
    EXPECT_EQ(loaded.note, "") << "it was trained for these weights";
    const auto model =
        std::make_shared<AssistantModel>(loaded.head, AssistantOptions{.fill = fill});
    return std::make_unique<SpeculativeDecoding>(
        target_, std::make_unique<AssistantDrafter>(target_, drafting_steps(model)),
        std::move(verifier), std::make_unique<FixedDraftLength>(length));
  }
  std::vector<Token> prompt(const std::string& text) const {
    std::vector<Token> tokens = tokenizer_->encode(text);
    tokens.insert(tokens.begin(), *tokenizer_->bos());
    return tokens;
  }

  std::shared_ptr<const TransformerWeights> weights_ = load_float("gemma4/target");
  TransformerModel target_{weights_, paged_kv()};
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(models() / "gemma4/target");
};

TEST_F(ShippedGemma4Test, GreedySpeculationGivesGreedyTokensAndSavesForwards) {
  CounterRandomness random(1);
  AutoregressiveDecoding plain(target_);
  const auto decoding = assisted(std::make_unique<ExactMatchVerifier>(), 4);
  int64_t steps = 0;
  int64_t tokens = 0;
  for (const char* text : {"The people of the United States", "ROMEO:", "{\"name\":"}) {
    const auto context = prompt(text);
    Request request{.prompt = context, .sampling = {}, .stop = {}, .random = random};
    request.stop.max_new_tokens = 100;
    const Generation generation = decoding->generate(request);
    EXPECT_EQ(generation.tokens, plain.generate(request).tokens) << text;
    steps += std::ssize(generation.steps);
    tokens += std::ssize(generation.tokens);
  }
  EXPECT_GT(static_cast<double>(tokens), 1.3 * static_cast<double>(steps));
}

TEST_F(ShippedGemma4Test, SampledSpeculationHasTheTargetsDistributionExactly) {
  Task task;
  task.prompt = prompt("The people of");
  task.sampling.temperature = 1.0;
  task.sampling.top_k = 3;
  task.stop.max_new_tokens = 3;
  AutoregressiveDecoding plain(target_);
  const SequenceDistribution wanted = exact_distribution(plain, task);
  EXPECT_EQ(wanted.size(), 27U);
  for (const CentroidFill fill : {CentroidFill::kBelowMinimum, CentroidFill::kNothing}) {
    const auto rejection = assisted(std::make_unique<RejectionVerifier>(), 2, fill);
    EXPECT_LT(max_difference(exact_distribution(*rejection, task), wanted), 1e-12);
    const auto block = assisted(std::make_unique<BlockVerifier>(), 2, fill);
    EXPECT_LT(max_difference(exact_distribution(*block, task), wanted), 1e-12);
  }
}

}  // namespace
}  // namespace specdec
