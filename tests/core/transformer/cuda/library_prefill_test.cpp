// Prompts whose products are a library's, on the ops of CUDA in the emulation, where LibTorch's CPU
// stands for cuBLAS.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "core/error.h"
#include "core/kernels/forwarding_ops.h"
#include "core/prefill_size.h"
#include "core/prefix_cached_model.h"
#include "core/prefix_store.h"
#include "core/transformer/heads/feature_model.h"
#include "decoders/autoregressive.h"
#include "decoders/beam_search.h"
#include "decoders/drafters/draft_model.h"
#include "decoders/drafters/feature_drafter.h"
#include "decoders/drafters/self_drafter.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using testing::HasSubstr;

class WatchedLibrary final : public ForwardingOps {
 public:
  WatchedLibrary() : ForwardingOps(cuda_ops(at::kCPU)) {}
  void library_linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ++products_;
    ForwardingOps::library_linear(weight, input, out);
  }
  int64_t take_products() { return std::exchange(products_, 0); }

 private:
  int64_t products_ = 0;
};

std::vector<Token> library_prompt(int64_t count) {
  std::vector<Token> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<Token>((7 * i + i * i / 5) % 40));
  }
  return tokens;
}

const ForwardOptions kByLibrary{.logits = Logits::kLast, .library_products = true};
constexpr int64_t kOfLayer = 4;  // products

class CudaLibraryPrefillTest : public testing::Test {
 protected:
  std::shared_ptr<const TransformerWeights> weights_ = small_gemma(1, kEmulated, at::kBFloat16);
  std::shared_ptr<WatchedLibrary> ops_ = std::make_shared<WatchedLibrary>();
  TransformerModel target_{weights_, paged_kv(), {.ops = ops_}};
  AutoregressiveDecoding plain_{target_};

  /// Keys and values of the prompt.
  Tensor kept(int64_t tokens) const {
    std::vector<Tensor> kept;
    for (int64_t layer = 0; layer < 2; ++layer) {
      const auto [keys, values] = target_.internals()->key_values(layer, 0, {0, tokens});
      kept.insert(kept.end(), {keys, values});
    }
    return at::stack(kept);
  }

  template <class Change>
  Generation generate(DecodingStrategy& strategy, int64_t tokens, const Change& change) {
    const Task task{.prompt = library_prompt(tokens), .stop = {.max_new_tokens = 12}};
    CounterRandomness random(3);
    Request request = task.request(random);
    request.library_products = true;
    change(request);
    return strategy.generate(request);
  }

  std::unique_ptr<SpeculativeDecoding> speculation(std::unique_ptr<Drafter> drafter, bool tree) {
    std::unique_ptr<DraftShape> shape = tree_shape();
    if (!tree) {
      shape = std::make_unique<FixedDraftLength>(3);
    }
    return std::make_unique<SpeculativeDecoding>(target_, std::move(drafter),
                                                 verifier_of(DeviceRule::kNone), std::move(shape));
  }
  std::unique_ptr<Drafter> draft_model(uint64_t seed) {
    return std::make_unique<DraftModelDrafter>(std::make_unique<TransformerModel>(
        small_gemma(seed, kEmulated, at::kBFloat16), paged_kv(), emulated()));
  }
  /// A drafter that reads the hidden states, or layers, of the whole prompt.
  std::unique_ptr<Drafter> eagle(EagleVersion version) {
    auto config = make_eagle_config(version, LayerStyle::kGemma, *weights_);
    if (version == EagleVersion::kEagle3) {
      config.capture_layers = {0, 1};
    }
    std::vector<std::unique_ptr<LanguageModel>> modules;
    modules.push_back(
        make_eagle_model(random_eagle_head(config, {.seed = 5}), weights_, paged_kv(), emulated()));
    return std::make_unique<FeatureDrafter>(
        std::move(modules),
        FeatureDrafterOptions{.capture_layers = eagle_capture_layers(config, weights_->config),
                              .hidden_size = config.hidden_size});
  }
};

TEST_F(CudaLibraryPrefillTest, IsThatOfPiecesWithEnoughTokens) {
  const std::pair<int64_t, int64_t> cases[] = {{255, 0}, {256, 1}, {767, 1}, {768, 2}};
  for (const auto& [tokens, pieces] : cases) {
    const Tensor logits = target_.prefill(library_prompt(tokens), kByLibrary).logits.clone();
    EXPECT_EQ(ops_->take_products(), 2 * kOfLayer * pieces) << tokens;
    const Tensor states = kept(tokens);
    const Tensor exact = target_.prefill(library_prompt(tokens), {}).logits;
    EXPECT_LT(max_difference(logits, exact), 1e-3) << tokens;
    EXPECT_EQ(at::equal(states, kept(tokens)), pieces == 0) << tokens;
    Draft draft = Draft::root(1);
    draft.add(2, draft.add(3, 0));
    target_.verify(draft, {});
    EXPECT_EQ(ops_->take_products(), 0);
  }
}

TEST_F(CudaLibraryPrefillTest, SpeculationHasTheTextOfPlainDecoding) {
  const auto as_is = [](Request&) {};
  std::unique_ptr<SpeculativeDecoding> strategies[] = {
      speculation(draft_model(1), false), speculation(draft_model(2), true),
      speculation(std::make_unique<SelfDrafter>(target_, SelfDrafterOptions{.layers = 1}), false),
      speculation(eagle(EagleVersion::kEagle), false),
      speculation(eagle(EagleVersion::kEagle3), true)};
  for (const int64_t tokens : {255, 256, 513}) {  // no piece, one, and one with a rest
    const Generation wanted = generate(plain_, tokens, as_is);
    const int64_t products = ops_->take_products();
    EXPECT_EQ(products > 0, tokens >= kFewestLibraryTokens) << tokens;
    const Tensor states = kept(tokens);
    for (const auto& strategy : strategies) {
      EXPECT_EQ(generate(*strategy, tokens, as_is).tokens, wanted.tokens) << tokens;
      EXPECT_EQ(ops_->take_products(), products) << tokens;
      EXPECT_TRUE(at::equal(kept(tokens), states)) << tokens;
    }
  }
  const auto traces = [&](Request& request) {
    (void)strategies[0]->trace(request, std::vector<Token>{1, 2}, {.depth = 2});
    EXPECT_EQ(ops_->take_products(), 2 * kOfLayer);
  };
  generate(plain_, 256, traces);
}

/// Layers that read other ones' keys are evaluated for the last token alone where nobody asks for
/// more, and routers choose experts: neither is the library's.
TEST(CudaLibraryPrefillFamilyTest, SharingLayersAndRoutersAreNotTheLibrarys) {
  for (const char* name : {"gemma4-e-a", "gemma4-moe-a"}) {
    const auto weights = load_rows(Golden(name).folder(), at::kHalf);
    const auto ops = std::make_shared<WatchedLibrary>();
    TransformerModel model(weights, paged_kv(), {.ops = ops});
    ForwardOptions options = kByLibrary;
    const Tensor logits = model.prefill(library_prompt(256), options).logits.clone();
    const int64_t products = ops->take_products();
    EXPECT_EQ(products, kOfLayer * first_sharing(weights->plan)) << name;
    options.hidden = Hidden::kAll;
    EXPECT_TRUE(at::equal(model.prefill(library_prompt(256), options).logits, logits)) << name;
    EXPECT_EQ(ops->take_products(), products) << name;
  }
}

TEST(CudaLibraryPrefillFamilyTest, AdaptersAreApplied) {
  const auto base = load_rows(test_data("gemma3-a"), at::kBFloat16);
  TransformerModel model(base, paged_kv(), emulated());
  model.push_adapter({load_lora(Golden("gemma3-lora-a").folder(), base)});
  const Tensor logits = model.prefill(library_prompt(256), kByLibrary).logits.clone();
  EXPECT_LT(max_difference(logits, model.prefill(library_prompt(256), {}).logits), 1e-2);
}

TEST_F(CudaLibraryPrefillTest, NoGraphHoldsIt) {
  TransformerModel graphed(weights_, paged_kv(), {.ops = cuda_ops(at::kCPU), .prefill_graphs = 4});
  const std::vector<Token> prompt = library_prompt(256);
  const Tensor wanted = target_.prefill(prompt, kByLibrary).logits.clone();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(graphed.prefill(prompt, kByLibrary).logits, wanted)) << i;
    graphed.prefill(prompt, {});
  }
  EXPECT_EQ(graphed.graph_counts().warm_ups, 1);
  EXPECT_EQ(graphed.graph_counts().replays, 1);
}

TEST_F(CudaLibraryPrefillTest, OtherForwardsAreRefused) {
  const std::vector<Token> tokens = library_prompt(300);
  const auto is_refused = [&](const TokenBatch& batch, const ForwardOptions& options) {
    EXPECT_THROW(target_.forward(batch, options), InternalError);
  };
  is_refused(batch_of(tokens), {.library_products = true});  // with all logits
  TokenBatch batch = batch_of(tokens);
  batch.parents.assign(300, -1);
  is_refused(batch, kByLibrary);
  batch = batch_of(tokens);
  batch.rows.resize(300);
  batch.rows.back() = target_.open();
  is_refused(batch, kByLibrary);
  target_.prefill(tokens, kByLibrary);
  EXPECT_THROW(target_.extend(tokens, kByLibrary), InternalError);
  is_refused(batch_of(tokens), kByLibrary);  // behind 300 tokens
  EXPECT_EQ(target_.length() + target_.pending(), 300);
}

TEST_F(CudaLibraryPrefillTest, WhatReadsOtherwiseRefusesIt) {
  const std::vector<Token> prompt = library_prompt(3);
  const auto by = [&](LanguageModel& model) {
    return error_message<Error>([&] { model.prefill(prompt, kByLibrary); });
  };
  TransformerModel on_cpu(small_gemma(1, {}), paged_kv());
  EXPECT_THAT(by(on_cpu), HasSubstr("use device: cuda, or prefill_products: exact"));
  PrefixCachedModel prefixed(std::make_unique<TransformerModel>(weights_, paged_kv(), emulated()));
  EXPECT_THAT(by(prefixed), HasSubstr("keeps prefixes"));

  PrefixStore prefixes(1 << 20);
  const Tensor logits = target_.prefill(prompt, {}).logits[0].clone();
  const auto refused = [&](DecodingStrategy& strategy, const auto& change) {
    return error_message<ConfigError>([&] { generate(strategy, 3, change); });
  };
  const auto whole = HasSubstr("leave out resumed, prefixes and prompt_logits");
  EXPECT_THAT(refused(plain_, [&](Request& request) { request.prefixes = &prefixes; }), whole);
  EXPECT_THAT(refused(plain_, [&](Request& request) { request.resumed = prompt; }), whole);
  EXPECT_THAT(refused(plain_, [&](Request& request) { request.prompt_logits = logits; }), whole);
  BeamSearchDecoding beams(target_, {});
  EXPECT_THAT(refused(beams, [](Request&) {}), HasSubstr("beams read parts of the text again"));
}

}  // namespace
}  // namespace specdec
