#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "core/kv_snapshot.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"

namespace specdec {

/// Writes NaN into all pages of a cache that hold no token of a row: what reads one is seen. Its
/// rows have kept something.
inline void poison_unused_pages(const TransformerModel& model) {
  const KvStore& cache = model.cache();
  std::map<int64_t, std::set<int32_t>> used;  // by group
  for (const RowId row : cache.rows()) {
    const BatchTables tables = cache.readers(row, 1, 0);
    const int64_t page_size = cache.view(0).page_size();
    const int64_t pages = (cache.length(row) + cache.pending(row) + page_size - 1) / page_size;
    for (int64_t group = 0; group < tables.page_tables.size(1); ++group) {
      const Tensor of_group = tables.page_tables[0][group].cpu();
      const auto* first = of_group.const_data_ptr<int32_t>();
      used[group].insert(first, first + pages);
    }
  }
  for (int64_t layer = 0; layer < std::ssize(model.weights().plan); ++layer) {
    const KvView view = cache.view(layer);
    for (int64_t page = 0; page < view.keys.size(0); ++page) {
      if (used[view.group].count(static_cast<int32_t>(page)) == 0) {
        view.keys[page].fill_(std::numeric_limits<double>::quiet_NaN());
        view.values[page].fill_(std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
}

/// Two models of the same weights, one over a cache with window_slack, that take the same random
/// steps: chains and trees on up to three rows, commits, truncations, forks, closed rows and
/// snapshots. What the first cache has given back is poisoned, and all logits have the same bits.
class SlackPair {
 public:
  struct Options {
    int64_t slack = 1;
    int64_t page_size = 4;
    uint32_t seed = 0;
    int64_t longest = 40;  ///< tokens of a row
    TransformerOptions model = {};
  };

  SlackPair(const std::shared_ptr<const TransformerWeights>& weights, const Options& options)
      : options_(options),
        random_(options.seed),
        model_(weights, paged_kv(options.page_size, KvFormat::kNative, 0, options.slack),
               options.model),
        plain_(weights, paged_kv(options.page_size), options.model) {
    grow(0);
  }

  void step() {
    const RowId row = any_row();
    switch (below(8)) {
      case 0:
        return truncate(row, model_.rewindable_to(below(model_.length(row) + 1), row));
      case 1:
        return change_rows(row);
      case 2:
        return restore(row);
      default:
        return grow(row);
    }
  }

  /// Largest number of pages that a sliding layer has less than it would have without slack.
  int64_t most_saved() const { return most_saved_; }

 private:
  template <class F>
  void both(const F& change) {
    change(model_);
    change(plain_);
  }
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  RowId any_row() {
    const std::vector<RowId> rows = model_.cache().rows();
    return rows[static_cast<size_t>(below(std::ssize(rows)))];
  }

  /// A chain or a tree, of which a path is committed: not less than a token.
  void grow(RowId row) {
    const int64_t room = options_.longest - model_.length(row);
    if (room == 0) {
      return truncate(row, 0);
    }
    const int64_t count = 1 + below(std::min<int64_t>(room, 9));
    const bool chain = below(3) == 0;
    std::vector<Token> tokens;
    std::vector<int64_t> parents;
    for (int64_t node = 0; node < count; ++node) {
      tokens.push_back(static_cast<Token>(below(model_.vocab_size())));
      parents.push_back(chain || below(2) == 0 ? node - 1 : below(node + 1) - 1);
    }
    const std::vector<int64_t> rows(tokens.size(), row);
    const TokenBatch batch{
        .tokens = at::tensor(tokens, at::kInt), .rows = rows, .parents = parents};
    const Tensor logits = model_.forward(batch).logits.clone();
    ASSERT_TRUE(at::equal(logits, plain_.forward(batch).logits)) << "row " << row;
    ASSERT_FALSE(logits.isnan().any().item<bool>());
    std::vector<int64_t> path;
    for (int64_t node = chain ? below(count) : count - 1; node >= 0;
         node = parents[static_cast<size_t>(node)]) {
      path.insert(path.begin(), node);
    }
    both([&](auto& m) { m.commit(path, row); });
    note_saved();
    poison_unused_pages(model_);
  }

  void truncate(RowId row, int64_t length) {
    both([&](auto& m) { m.truncate(length, row); });
    if (length == 0) {
      grow(row);
    }
  }

  void change_rows(RowId row) {
    if (model_.cache().rows().size() < 3) {
      const int64_t length = model_.length(row) - below(options_.slack + 1);
      if (length > 0 && model_.rewindable_to(length, row) == length) {
        both([&](auto& m) { m.fork(row, length); });
      }
    } else if (row != 0) {
      both([&](auto& m) { m.close(row); });
    }
  }

  /// A row holds what another did.
  void restore(RowId row) {
    const RowId from = any_row();
    const auto snapshot = model_.snapshots()->kv_snapshot(from);
    const auto plain = plain_.snapshots()->kv_snapshot(from);
    const int64_t length = snapshot->rewindable_to(model_.length(from) - below(3));
    if (length <= 0) {
      return;
    }
    const KvCopies copies(snapshot->copy(), snapshot->length(), snapshot->shortest_length());
    const KvSnapshot& source = below(2) == 0 ? static_cast<const KvSnapshot&>(copies) : *snapshot;
    model_.snapshots()->kv_restore(source, length, row);
    plain_.snapshots()->kv_restore(*plain, length, row);
  }

  void note_saved() {
    const auto with = model_.cache().statistics().layers;
    const auto without = plain_.cache().statistics().layers;
    for (size_t layer = 0; layer < with.size(); ++layer) {
      most_saved_ = std::max(most_saved_, without[layer].used_pages - with[layer].used_pages);
    }
  }

  Options options_;
  std::mt19937 random_;
  TransformerModel model_;
  TransformerModel plain_;
  int64_t most_saved_ = 0;
};

}  // namespace specdec
