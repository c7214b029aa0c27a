#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/emulated_model.h"

/// What tests of chains in graphs share.
namespace specdec {

inline TransformerOptions graph_options(std::shared_ptr<Ops> ops = cuda_ops(at::kCPU)) {
  return {.max_length = 64, .ops = std::move(ops)};
}

/// The distributions of the newest drawn chain, which later ones leave as they are: so chains are
/// drawn into two places in turn.
class HeldProbs {
 public:
  void hold(const Tensor& probs) {
    EXPECT_TRUE(!held_.defined() || at::equal(held_, as_they_were_));
    if (probs.defined()) {
      held_ = probs;
      as_they_were_ = probs.clone();
    }
  }

 private:
  Tensor held_, as_they_were_;
};

/// Caches whose rows grow to lengths on both sides of what contexts, rotary tables and page tables
/// grow at.
class GrownCaches {
 public:
  struct Case {
    int64_t length;
    int64_t count;  ///< tokens of a chain
  };
  /// The last two are graphs of their own, which are launched apart where all tables stay.
  static constexpr Case kCases[] = {{60, 3}, {70, 3}, {130, 3}, {520, 3}, {100, 2}, {300, 2}};

  static TransformerOptions options(int64_t graphs) {
    TransformerOptions options = graph_options();
    options.max_length = 1100;
    options.graphs = graphs;
    return options;
  }
  KvStoreFactory factory() {
    return [this](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
      std::unique_ptr<KvStore> store = paged_kv(4)(layers, options);
      stores_.push_back(store.get());
      return store;
    };
  }
  /// Row 0 of each keeps the beginning of one text, and nothing is pending.
  void resize(int64_t length) {
    for (KvStore* store : stores_) {
      const int64_t kept = length < store->length(0) ? 0 : store->length(0);
      store->truncate(0, kept);
      if (length > kept) {
        store->append(0, length - kept, [&](int64_t layer) {
          const auto of_layer = [&](const Tensor& numbers) {
            return numbers.narrow(1, kept, length - kept).mul(1.0 + static_cast<double>(layer));
          };
          return std::pair(of_layer(keys_), of_layer(values_));
        });
      }
    }
  }

 private:
  std::vector<KvStore*> stores_;  // of models
  Tensor keys_ = at::randn({1, 520, 8});
  Tensor values_ = at::randn({1, 520, 8});
};

}  // namespace specdec
