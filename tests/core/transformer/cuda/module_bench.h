#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/draft.h"
#include "core/transformer/heads/drafting_functions.h"
#include "decoders/drafters/feature_drafter.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/chain_graphs.h"

/// What tests of drafts of several modules share.
namespace specdec {

using FeatureModels = std::vector<std::unique_ptr<FeatureModel>>;

/// Three modules of a head, each with a cache of its own.
inline FeatureModels three_models(const std::shared_ptr<const TransformerWeights>& weights,
                                  const TransformerOptions& options,
                                  const KvStoreFactory& store = paged_kv()) {
  const auto head = random_mtp_head(*weights, 3, {.seed = 7});
  FeatureModels models;
  for (size_t module = 0; module < 3; ++module) {
    models.push_back(make_mtp_model(head, module, weights, store, options));
  }
  return models;
}

inline ModuleDrafts drafts_of(const FeatureModels& models) {
  return {{models[0].get(), models[1].get(), models[2].get()}, 8};
}

/// Draws what `drafts` draw; where it is the first draft of a key, which grows level by level
/// elsewhere, once more. `waited` counts these.
template <class Draw>
auto draw_known(const ModuleDrafts& drafts, const Draw& draw, int64_t* waited = nullptr) {
  const GraphCounts before = drafts.graph_counts();
  auto drawn = draw();
  if (!drawn && drafts.graph_counts() == before) {
    drawn = draw();
    if (waited != nullptr) {
      *waited += drawn ? 1 : 0;
    }
  }
  return drawn;
}

/// Of each module at the newest token that it keeps.
inline std::vector<Tensor> random_features() {
  return {at::randn({1, 16}), at::randn({1, 16}), at::randn({1, 16})};
}

/// Feeds tokens to all modules by forwards that keep them: logits [1, 40] of the first one.
/// `newest` become the features at the last token.
inline Tensor fed_by_forwards(const FeatureModels& modules, TokenSpan tokens,
                              const Tensor& target_features, std::vector<Tensor>& newest) {
  Tensor logits;
  Tensor features = target_features;
  const auto count = std::ssize(tokens);
  for (size_t module = 0; module < modules.size(); ++module) {
    const ForwardResult result = modules[module]->extend(
        tokens, {.logits = module == 0 ? Logits::kLast : Logits::kNone, .hidden = Hidden::kAll},
        {.features = features, .own_features = module > 0});
    logits = module == 0 ? result.logits.clone() : logits;
    const Tensor out = result.final_hidden.clone();
    features = at::cat({newest[module], out.narrow(0, 0, count - 1)});
    newest[module] = out.narrow(0, count - 1, 1);
  }
  return logits;
}

/// Modules keep the tokens that a draft was drawn behind.
inline void keep_fed(const FeatureModels& modules, int64_t count) {
  for (const auto& module : modules) {
    module->commit(chain_path(count));
  }
}

/// Each feature but that of the last module, which is fed to none.
inline void expect_the_same_newest(const std::vector<Tensor>& own,
                                   const std::vector<Tensor>& wanted) {
  for (size_t module = 0; module + 1 < wanted.size(); ++module) {
    EXPECT_TRUE(at::equal(own[module], wanted[module])) << module;
  }
  EXPECT_FALSE(own.back().defined());
}

}  // namespace specdec
