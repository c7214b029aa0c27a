#pragma once
#include <ATen/ATen.h>

#include <memory>
#include <vector>

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

inline std::vector<Tensor> random_features() {
  return {at::randn({1, 16}), at::randn({1, 16}), at::randn({1, 16})};
}

}  // namespace specdec
