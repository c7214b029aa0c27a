#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "core/row_tiers.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"

namespace specdec {

/// Two models with different caches, which take the same steps: chains and trees on up to three
/// rows, commits, truncations, snapshots, forks and closed rows.
class CachePair {
 public:
  CachePair(const std::shared_ptr<const TransformerWeights>& weights, const KvStoreFactory& cache,
            KvFormat format, uint32_t seed)
      : CachePair(weights, cache, paged_kv(kDefaultPageSize, format), seed) {}
  /// `plain`: keeps what the other one gives back.
  CachePair(const std::shared_ptr<const TransformerWeights>& weights, const KvStoreFactory& cache,
            const KvStoreFactory& plain, uint32_t seed)
      : random_(seed), model_(weights, cache), plain_(weights, plain) {}

  void step() {
    switch (below(7)) {
      case 0:
        return both([length = model_.rewindable_to(below(model_.length() + 1))](auto& m) {
          m.truncate(length);
        });
      case 1:
        return change_rows();
      case 2:
        return restore();
      default:
        return forward();
    }
  }

  /// Pages of a row move between the tiers of the first model's cache.
  void move_pages() {
    RowTiers& tiers = *model_.cache().row_tiers();
    const RowId row = any_row();
    switch (below(4)) {
      case 0:
        return tiers.prefetch_async(row);
      case 1:
        (void)tiers.promote(row);
        return;
      default:
        (void)tiers.demote(row);
    }
  }

  const KvStore& cache() const { return model_.cache(); }

 private:
  template <class F>
  void both(const F& change) {
    change(model_);
    change(plain_);
  }
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  void forward() {
    const RowId row = any_row();
    std::vector<Token> tokens(static_cast<size_t>(1 + below(9)));
    std::vector<int64_t> rows(tokens.size(), row);
    std::vector<int64_t> parents(tokens.size());
    both([&](auto& m) { m.truncate(m.length(row), row); });
    if (model_.length(row) + std::ssize(tokens) > model_.max_length()) {
      return both([&](auto& m) { m.truncate(0, row); });
    }
    for (size_t node = 0; node < tokens.size(); ++node) {
      tokens[node] = static_cast<Token>(below(model_.vocab_size()));
      parents[node] = below(2) == 0 ? static_cast<int64_t>(node) - 1
                                    : below(static_cast<int64_t>(node) + 1) - 1;
    }
    const TokenBatch batch{
        .tokens = at::tensor(tokens, at::kInt), .rows = rows, .parents = parents};
    ASSERT_TRUE(at::equal(model_.forward(batch).logits, plain_.forward(batch).logits));
    std::vector<int64_t> path;
    for (int64_t node = below(std::ssize(tokens)); node >= 0;
         node = parents[static_cast<size_t>(node)]) {
      path.insert(path.begin(), node);
    }
    both([&](auto& m) { m.commit(path, row); });
  }

  RowId any_row() {
    const std::vector<RowId> rows = model_.cache().rows();
    return rows[static_cast<size_t>(below(std::ssize(rows)))];
  }

  void change_rows() {
    const RowId row = any_row();
    if (model_.cache().rows().size() < 3) {
      const int64_t length = model_.rewindable_to(below(model_.length(row) + 1), row);
      both([&](auto& m) { m.fork(row, length); });
    } else if (row != 0) {
      both([&](auto& m) { m.close(row); });
    }
  }

  void restore() {
    const int64_t length = model_.rewindable_to(below(model_.length() + 1));
    both([&](auto& m) {
      m.truncate(m.length());
      const auto snapshot = m.snapshots()->kv_snapshot(0);
      m.truncate(0);
      m.snapshots()->kv_restore(*snapshot, length);
    });
  }

  std::mt19937 random_;
  TransformerModel model_;
  TransformerModel plain_;
};

}  // namespace specdec
