// Requests whose prompts overlap, decoded by each kind of drafter after prefixes from a small
// store, against the same strategy on a target that reads every prompt whole: tokens, gaps and
// drafts.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <random>

#include "core/prefix_store.h"
#include "core/transformer/heads/block_head.h"
#include "core/transformer/heads/drafting_functions.h"
#include "core/transformer/heads/feature_model.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/assistant.h"
#include "decoders/drafters/block.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/feature_drafter.h"
#include "decoders/drafters/medusa.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/drafters/self_drafter.h"
#include "decoders/drafters/suffix.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/exact_match.h"
#include "kv/paged_kv.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using PrefixedTarget = std::shared_ptr<TransformerWeights>;

constexpr int64_t kPrefixedVocab = 29;

struct PrefixedCase {
  std::string name;
  /// A drafter of a target; nullptr: none, plain decoding.
  std::function<std::unique_ptr<Drafter>(const PrefixedTarget&, TransformerModel&)> drafter = {};
  int64_t window_slack = 0;
  bool gemma3 = false;  ///< the target; else a Gemma 4

  PrefixedTarget target() const {
    return gemma3 ? tiny_gemma(kPrefixedVocab) : tiny_gemma4("dense", kPrefixedVocab);
  }
};

void PrintTo(const PrefixedCase& one, std::ostream* out) { *out << one.name; }

std::unique_ptr<Drafter> prefixed_eagle(EagleVersion version, const PrefixedTarget& target) {
  const auto head = random_eagle_head(make_eagle_config(version, LayerStyle::kLlama, *target),
                                      {.seed = 8, .dtype = at::kDouble});
  std::vector<std::unique_ptr<LanguageModel>> modules;
  modules.push_back(make_eagle_model(head, target, paged_kv()));
  return std::make_unique<FeatureDrafter>(
      std::move(modules),
      FeatureDrafterOptions{.capture_layers = eagle_capture_layers(head->config, target->config),
                            .hidden_size = target->config.hidden_size});
}

std::unique_ptr<Drafter> prefixed_mtp(const PrefixedTarget& target, TransformerModel& /*model*/) {
  const auto head = random_mtp_head(*target, 2, {.seed = 6, .dtype = at::kDouble});
  MtpModules modules = make_mtp_modules(head, std::ssize(head->layers), target, paged_kv());
  return std::make_unique<FeatureDrafter>(
      std::move(modules.models), FeatureDrafterOptions{.hidden_size = target->config.hidden_size,
                                                       .modules = drawing_of(modules.drafts)});
}

std::unique_ptr<Drafter> prefixed_medusa(const PrefixedTarget& target, TransformerModel&) {
  const MedusaHead head = new_medusa_head({.num_heads = 2, .num_layers = 1, .share_lm_head = true},
                                          unpack(*target), target->weight_dtype);
  return std::make_unique<MedusaDrafter>(
      drafting_heads(std::make_shared<MedusaModel>(head, target)));
}

std::unique_ptr<Drafter> prefixed_assistant(const PrefixedTarget& target, TransformerModel& model) {
  const auto head = random_assistant(*target,
                                     {.hidden_size = 8,
                                      .intermediate_size = 12,
                                      .heads = 2,
                                      .layers = 3,
                                      .clusters = 0,
                                      .chosen = 0},
                                     {.seed = 7, .dtype = target->weight_dtype});
  return std::make_unique<AssistantDrafter>(
      model, drafting_steps(std::make_shared<AssistantModel>(head, AssistantOptions{})));
}

std::unique_ptr<Drafter> prefixed_block(const PrefixedTarget& target, TransformerModel&) {
  BlockHeadConfig config = make_block_head_config(*target, 2, 4);
  config.mask_token = 1;
  const auto head = random_block_head(config, {.seed = 7, .dtype = target->weight_dtype});
  return std::make_unique<BlockDrafter>(
      std::make_unique<BlockHeadModel>(head, target, paged_kv(),
                                       TransformerOptions{.max_length = 256}),
      BlockDrafterOptions{.capture_layers = head->config.capture_layers});
}

std::vector<PrefixedCase> prefixed_cases() {
  const auto draft_model = [](const PrefixedTarget&, TransformerModel&) {
    return std::make_unique<DraftModelDrafter>(std::make_unique<TransformerModel>(
        tiny_gemma4("dense", kPrefixedVocab, at::kDouble), paged_kv()));
  };
  return {
      {"plain"},
      {"plain_window_slack", {}, 4},
      {"draft_model", draft_model},
      {"draft_model_window_slack", draft_model, 4},
      {"prompt_lookup", [](const auto&, auto&) { return std::make_unique<PromptLookupDrafter>(); }},
      {"suffix", [](const auto&, auto&) { return std::make_unique<SuffixDrafter>(); }},
      {"self",
       [](const auto&, TransformerModel& model) {
         return std::make_unique<SelfDrafter>(model, SelfDrafterOptions{.layers = 2});
       }},
      {"eagle1",
       [](const auto& target, auto&) { return prefixed_eagle(EagleVersion::kEagle, target); }},
      {"eagle3",
       [](const auto& target, auto&) { return prefixed_eagle(EagleVersion::kEagle3, target); }},
      {"mtp", prefixed_mtp, 0, true},
      {"medusa", prefixed_medusa, 0, true},
      {"assistant", prefixed_assistant},
      {"block", prefixed_block}};
}

class PrefixDecodingTest : public testing::TestWithParam<PrefixedCase> {
 protected:
  struct Decoder {
    Decoder(const PrefixedTarget& weights, const PrefixedCase& one)
        : target(weights, paged_kv(4, KvFormat::kNative, 0, one.window_slack)) {
      strategy = std::make_unique<AutoregressiveDecoding>(target);
      if (one.drafter) {
        strategy = std::make_unique<SpeculativeDecoding>(target, one.drafter(weights, target),
                                                         std::make_unique<ExactMatchVerifier>(),
                                                         std::make_unique<FixedDraftLength>(2));
      }
    }
    Generation generate(const std::vector<Token>& prompt, PrefixStore* prefixes) {
      CounterRandomness random(7);
      return strategy->generate({.prompt = prompt,
                                 .sampling = {.temperature = 0.0},
                                 .stop = {.max_new_tokens = 6},
                                 .random = random,
                                 .prefixes = prefixes});
    }

    TransformerModel target;
    std::unique_ptr<DecodingStrategy> strategy;
  };

  PrefixDecodingTest() { at::set_num_threads(1); }
  ~PrefixDecodingTest() override { at::set_num_threads(threads_); }

  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  /// The beginning of one of the last texts, and some tokens.
  std::vector<Token> next_prompt() {
    std::vector<Token> prompt;
    if (!texts_.empty() && below(5) > 0) {
      const int64_t recent = std::min<int64_t>(std::ssize(texts_), 6);
      prompt = texts_[texts_.size() - static_cast<size_t>(1 + below(recent))];
      prompt.resize(static_cast<size_t>(below(std::ssize(prompt) + 1)));
    }
    for (int64_t more = 1 + below(8); more > 0; --more) {
      prompt.push_back(static_cast<Token>(below(kPrefixedVocab)));
    }
    prompt.resize(std::min<size_t>(prompt.size(), 40));
    return prompt;
  }

  std::mt19937_64 random_{3};
  std::vector<std::vector<Token>> texts_;

 private:
  int threads_ = at::get_num_threads();
};

TEST_P(PrefixDecodingTest, OverlappingRequestsAreThoseOfATargetWithoutAStore) {
  const PrefixedTarget weights = GetParam().target();
  Decoder warm(weights, GetParam());
  Decoder cold(weights, GetParam());
  (void)cold.target.prefill_get_last_logits(std::vector<Token>(46, 1));
  PrefixStore store(3 * cold.target.snapshots()->kv_snapshot()->bytes());
  for (int request = 0; request < 80; ++request) {
    std::vector<Token> text = next_prompt();
    const Generation found = warm.generate(text, &store);
    const Generation wanted = cold.generate(text, nullptr);
    ASSERT_EQ(found.tokens, wanted.tokens) << "request " << request;
    ASSERT_EQ(found.gaps, wanted.gaps);
    ASSERT_EQ(found.steps.size(), wanted.steps.size());
    for (size_t step = 0; step < wanted.steps.size(); ++step) {
      ASSERT_EQ(found.steps[step].drafted, wanted.steps[step].drafted);
      ASSERT_EQ(found.steps[step].accepted, wanted.steps[step].accepted);
    }
    text.insert(text.end(), found.tokens.begin(), found.tokens.end());
    texts_.push_back(std::move(text));
  }
  EXPECT_GT(store.statistics().hits, 10);
  EXPECT_GT(store.statistics().evicted, 10);
  EXPECT_EQ(store.statistics().bypassed, 0);
}

INSTANTIATE_TEST_SUITE_P(Drafters, PrefixDecodingTest, testing::ValuesIn(prefixed_cases()),
                         [](const testing::TestParamInfo<PrefixedCase>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace specdec
