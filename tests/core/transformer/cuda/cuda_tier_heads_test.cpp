// Heads whose caches lie in tiers draft what they draft over caches that are all on the device: as
// graphs where their pages are there, and level by level where some have left.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/transformer/heads/drafting_functions.h"
#include "core/transformer/heads/feature_model.h"
#include "decoders/drafters/feature_drafter.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/module_bench.h"
#include "tests/core/transformer/cuda/tiered_device.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

class CudaTierHeadsTest : public TieredDeviceTest {
 protected:
  std::shared_ptr<const TransformerWeights> weights_ = small_gemma();
  std::shared_ptr<const TransformerWeights> wide_ = deep_gemma();  ///< a page is a block
};

using TieredModules = std::vector<std::unique_ptr<FeatureModel>>;

TieredModules three_modules_of(const std::shared_ptr<const TransformerWeights>& weights,
                               const std::vector<KvStoreFactory>& stores) {
  const auto head = random_mtp_head(*weights, 3, {.seed = 7});
  TransformerOptions options = tier_options();
  options.max_length = 64;
  TieredModules modules;
  for (size_t module = 0; module < 3; ++module) {
    modules.push_back(make_mtp_model(head, module, weights, stores[module], options));
  }
  return modules;
}

ModuleDrafts drafts_on(const TieredModules& modules) {
  return ModuleDrafts({modules[0].get(), modules[1].get(), modules[2].get()}, 8);
}

/// Keeps tokens in each, and draws a chain behind them, of `length` with one that is fed with it.
std::optional<DrawnChain> chain_of_modules(ModuleDrafts& drafts, const TieredModules& modules,
                                           const Tensor& numbers, int64_t length) {
  std::vector<Tensor> newest;
  for (const auto& module : modules) {
    module->truncate(0);
    module->extend(std::vector<Token>(static_cast<size_t>(length - 1), 3),
                   {.logits = Logits::kNone}, {.features = numbers.narrow(0, 0, length - 1)});
    newest.push_back(numbers.narrow(0, std::ssize(newest), 1));
  }
  const std::vector<Token> fed = {3};
  return draw_known(drafts, [&] {
    return drafts.draw_chain(ChainDraws().drawn(4), {fed, numbers.narrow(0, 9, 1), newest});
  });
}

TEST_F(CudaTierHeadsTest, AChainOfModulesIsAGraphWhereItFits) {
  const TieredModules paged = three_modules_of(wide_, {paged_kv(), paged_kv(), paged_kv()});
  const TieredModules modules = three_modules_of(wide_, {tiered(1, 0), tiered(1, 0), tiered(1, 0)});
  ModuleDrafts wanted = drafts_on(paged);
  ModuleDrafts drafts = drafts_on(modules);
  const Tensor numbers = at::randn({16, 16});
  ASSERT_TRUE(drafts.can_draw_tree(1, 4));
  for (int round = 0; round < 4; ++round) {
    const auto expected = chain_of_modules(wanted, paged, numbers, 13);
    const auto drawn = chain_of_modules(drafts, modules, numbers, 13);
    ASSERT_TRUE(expected.has_value() && drawn.has_value());
    expect_equal_chains(*drawn, *expected);
  }
  EXPECT_EQ(drafts.graph_counts().replays, wanted.graph_counts().replays);
  EXPECT_GT(drafts.graph_counts().replays, 0);
  // The second module has room for its step, the third one none for its three.
  EXPECT_FALSE(chain_of_modules(drafts, modules, numbers, 15).has_value());
  for (const auto& module : modules) {
    EXPECT_EQ(module->pending(), 0);
    EXPECT_EQ(module->length(), 14);
  }
  const auto expected = chain_of_modules(wanted, paged, numbers, 13);
  const auto drawn = chain_of_modules(drafts, modules, numbers, 13);
  ASSERT_TRUE(expected.has_value() && drawn.has_value());
  expect_equal_chains(*drawn, *expected);
}

TEST_F(CudaTierHeadsTest, AFailingDiskOfOneModuleLeavesNothingPendingInOthers) {
  NotedPages::Notes notes;
  const TieredModules paged = three_modules_of(wide_, {paged_kv(), paged_kv(), paged_kv()});
  const TieredModules modules =
      three_modules_of(wide_, {tiered(1, 0), tiered(1, 0), noted(tiered(1, 0), notes)});
  ModuleDrafts wanted = drafts_on(paged);
  ModuleDrafts drafts = drafts_on(modules);
  const Tensor numbers = at::randn({16, 16});
  (void)chain_of_modules(drafts, modules, numbers, 12);
  notes.fails = true;
  std::vector<Tensor> newest(3, numbers.narrow(0, 0, 1));
  const std::vector<Token> fed = {3};
  for (const auto& module : modules) {
    module->truncate(module->length());
  }
  EXPECT_THAT(
      error_message<Error>([&] {
        (void)drafts.draw_chain(ChainDraws().drawn(4), {fed, numbers.narrow(0, 9, 1), newest});
      }),
      testing::HasSubstr("the disk is full"));
  for (const auto& module : modules) {
    EXPECT_EQ(module->pending(), 0);
    EXPECT_EQ(module->length(), 11);
  }
  notes.fails = false;
  const auto expected = chain_of_modules(wanted, paged, numbers, 12);
  const auto drawn = chain_of_modules(drafts, modules, numbers, 12);
  ASSERT_TRUE(expected.has_value() && drawn.has_value());
  expect_equal_chains(*drawn, *expected);
}

/// Row 0's pages leave before each forward.
class LeavingPages final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  void extend(const NewNodes& nodes) override {
    (void)row_tiers()->demote(0);
    ForwardingStore::extend(nodes);
  }
};

KvStoreFactory leaving(KvStoreFactory store) {
  return [store = std::move(store)](const std::vector<LayerKv>& layers,
                                    const KvStoreOptions& options) {
    return std::make_unique<LeavingPages>(store(layers, options));
  };
}

/// Drafters of heads on a target, and what their graphs count.
struct TieredHead {
  std::unique_ptr<Drafter> drafter;
  std::shared_ptr<ModuleDrafts> drafts = nullptr;  ///< of several modules
};

TransformerOptions head_options_of(int64_t graphs) {
  TransformerOptions options = tier_options(graphs);
  options.max_length = 64;
  return options;
}

TieredHead tiered_eagle(const std::shared_ptr<const TransformerWeights>& weights,
                        const KvStoreFactory& store, int64_t graphs) {
  const auto config = make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *weights);
  const auto head = random_eagle_head(config, {.seed = 5});
  std::vector<std::unique_ptr<LanguageModel>> modules;
  modules.push_back(make_eagle_model(head, weights, store, head_options_of(graphs)));
  return {std::make_unique<FeatureDrafter>(
      std::move(modules),
      FeatureDrafterOptions{.capture_layers = eagle_capture_layers(config, weights->config),
                            .hidden_size = config.hidden_size})};
}

TieredHead tiered_modules(const std::shared_ptr<const TransformerWeights>& weights,
                          const KvStoreFactory& store, int64_t graphs) {
  const auto head = random_mtp_head(*weights, 3, {.seed = 7});
  MtpModules modules = make_mtp_modules(head, 3, weights, store, head_options_of(graphs));
  FeatureDrafterOptions options{.hidden_size = 16, .modules = drawing_of(modules.drafts)};
  return {std::make_unique<FeatureDrafter>(std::move(modules.models), options), modules.drafts};
}

using MakeTieredHead = TieredHead (*)(const std::shared_ptr<const TransformerWeights>&,
                                      const KvStoreFactory&, int64_t graphs);

/// What a head's drafts come to over a store.
struct TieredGeneration {
  Generation generation;
  GraphCounts counts;  ///< of drafts of several modules
};

TieredGeneration generate_over(const std::shared_ptr<const TransformerWeights>& weights,
                               MakeTieredHead make, const KvStoreFactory& store, bool is_tree,
                               const SamplingParams& sampling, int64_t graphs = 8) {
  TransformerModel target(weights, paged_kv(), head_options_of(8));
  TieredHead head = make(weights, store, graphs);
  std::unique_ptr<DraftShape> shape = std::make_unique<FixedDraftLength>(3);
  SpeculativeDecoding strategy(
      target, std::move(head.drafter),
      verifier_of(sampling.temperature > 0.0 ? DeviceRule::kRejection : DeviceRule::kNone),
      is_tree ? tree_shape() : std::move(shape));
  Generation generation = generate_chains(strategy, kChainPrompts.front(), sampling, 12);
  return {std::move(generation),
          head.drafts != nullptr ? head.drafts->graph_counts() : GraphCounts()};
}

void expect_equal_drafts(const Generation& drawn, const Generation& wanted) {
  EXPECT_EQ(drawn.tokens, wanted.tokens);
  ASSERT_EQ(drawn.steps.size(), wanted.steps.size());
  for (size_t i = 0; i < wanted.steps.size(); ++i) {
    EXPECT_EQ(drawn.steps[i].drafted, wanted.steps[i].drafted);
    EXPECT_EQ(drawn.steps[i].accepted, wanted.steps[i].accepted);
    EXPECT_EQ(drawn.steps[i].rejected, wanted.steps[i].rejected);
    if (wanted.steps[i].drafted > 1) {  // a chain of one token needs no room for steps
      EXPECT_EQ(drawn.steps[i].draft_read_backs, wanted.steps[i].draft_read_backs) << i;
    }
  }
}

TEST_F(CudaTierHeadsTest, ChainsAndTreesOfAHeadAreThoseOfAPagedCache) {
  for (const bool is_tree : {false, true}) {
    const SamplingParams sampling{.temperature = is_tree ? 0.0 : 1.0};
    const auto wanted = generate_over(weights_, tiered_eagle, paged_kv(), is_tree, sampling);
    for (const KvStoreFactory& store : {tiered(8, 0), leaving(tiered(8, 0))}) {
      const auto drawn = generate_over(weights_, tiered_eagle, store, is_tree, sampling);
      expect_equal_drafts(drawn.generation, wanted.generation);
    }
  }
}

TEST_F(CudaTierHeadsTest, DraftsOfModulesThatFitAreGraphs) {
  for (const bool is_tree : {false, true}) {
    const auto wanted = generate_over(weights_, tiered_modules, paged_kv(), is_tree, {});
    const auto drawn = generate_over(weights_, tiered_modules, tiered(8, 0), is_tree, {});
    expect_equal_drafts(drawn.generation, wanted.generation);
    EXPECT_EQ(drawn.counts.replays, wanted.counts.replays);
    EXPECT_GT(drawn.counts.replays, 0);
  }
}

/// They are drawn on the device all the same, level by level.
TEST_F(CudaTierHeadsTest, DraftsOfModulesWhosePagesLeaveAreDrawnAsWithoutGraphs) {
  for (const auto& [temperature, is_tree] :
       {std::pair(0.0, false), std::pair(1.0, false), std::pair(1.0, true)}) {
    const SamplingParams sampling{.temperature = temperature};
    const auto wanted = generate_over(weights_, tiered_modules, paged_kv(), is_tree, sampling, 0);
    const auto drawn =
        generate_over(weights_, tiered_modules, leaving(tiered(8, 0)), is_tree, sampling);
    expect_equal_drafts(drawn.generation, wanted.generation);
    EXPECT_EQ(drawn.counts.warm_ups, 0);
    for (const StepStatistics& step : drawn.generation.steps) {
      EXPECT_EQ(step.draft_read_backs.count, step.drafted > 0 ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace specdec
