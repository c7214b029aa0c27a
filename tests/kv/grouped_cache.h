#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "core/kernels/ops.h"
#include "tests/kv/cache_model.h"
#include "tests/support/ranged_reference.h"

namespace specdec {

constexpr int64_t kGroupedLength = 400;

inline std::vector<LayerKv> grouped_layers() {
  return {{2, 40, 0, -1}, {1, 8, 70, -1}, {2, 40, 0, 0}};
}

inline KvCacheOptions grouped_options(KvFormat format, int64_t recent, int64_t slack = 0,
                                      int64_t page_size = kKeyGroup) {
  return {.format = format,
          .page_size = page_size,
          .max_length = kGroupedLength,
          .window_slack = slack,
          .exact_recent = recent,
          .max_pages = 64};
}

/// A cache whose keys and values are written by a device's op, and the tokens of its rows: numbers
/// of columns of random keys and values, each used once.
class GroupedCache {
 public:
  explicit GroupedCache(const KvCacheOptions& options, std::shared_ptr<Ops> ops = cpu_ops())
      : options_(options),
        cache_(grouped_layers(), options),
        ops_(cache_.observed(std::move(ops))),
        rows_{{0, {}}} {
    for (const LayerKv& layer : {grouped_layers()[0], grouped_layers()[1]}) {
      numbers_.push_back(at::randn({8'000, 3 * layer.kv_heads, layer.head_dim}) * 3);
    }
  }

  struct Row {
    std::vector<int64_t> kept = {}, pending = {}, parents = {};
  };

  void extend(RowId row, const std::vector<int64_t>& parents) {
    const auto count = std::ssize(parents);
    cache_.extend(
        {.count = count, .rows = std::vector<int64_t>(parents.size(), row), .parents = parents});
    Row& owner = rows_.at(row);
    for (int64_t layer = 0; layer < 2; ++layer) {
      const LayerKv geometry = grouped_layers()[static_cast<size_t>(layer)];
      const QkvOptions options{.heads = geometry.kv_heads,
                               .eps = 0,
                               .q_scale = {},
                               .k_scale = {},
                               .cos = at::ones({kGroupedLength, geometry.head_dim / 2}),
                               .sin = at::zeros({kGroupedLength, geometry.head_dim / 2})};
      Tensor queries = at::empty({count, geometry.kv_heads, geometry.head_dim});
      ops_->qkv_to_cache(numbers(layer).narrow(0, next_, count).flatten(1), options,
                         cache_.view(layer), queries);
      if (attends_) {
        Tensor& read = read_[static_cast<size_t>(layer)];
        read = at::empty_like(queries);
        ops_->paged_attention(queries, cache_.view(layer), {.scale = 0.1, .bias = {}}, read);
      }
    }
    for (const int64_t parent : parents) {
      owner.parents.push_back(parent);
      owner.pending.push_back(next_++);
    }
  }

  void extend_chain(RowId row, int64_t count) {
    std::vector<int64_t> parents(static_cast<size_t>(count));
    std::iota(parents.begin(), parents.end(), std::ssize(rows_.at(row).pending) - 1);
    extend(row, parents);
  }

  /// Keeps the path to a pending node; -1 = nothing.
  void commit(RowId row, int64_t node) {
    Row& owner = rows_.at(row);
    std::vector<int64_t> path;
    for (; node >= 0; node = owner.parents[static_cast<size_t>(node)]) {
      path.insert(path.begin(), node);
    }
    cache_.commit(row, path);
    for (const int64_t kept : path) {
      owner.kept.push_back(owner.pending[static_cast<size_t>(kept)]);
    }
    owner = {.kept = owner.kept};
  }

  void append(RowId row, int64_t count) {
    cache_.append(row, count, [&](int64_t layer) {
      const LayerKv geometry = grouped_layers()[static_cast<size_t>(layer)];
      const Tensor tokens = numbers(layer).narrow(0, next_, count).transpose(0, 1);
      return std::pair(tokens.narrow(0, geometry.kv_heads, geometry.kv_heads).contiguous(),
                       tokens.slice(0, 2 * geometry.kv_heads).contiguous());
    });
    for (int64_t i = 0; i < count; ++i) {
      rows_.at(row).kept.push_back(next_++);
    }
  }

  void truncate(RowId row, int64_t length) {
    cache_.truncate(row, length);
    rows_.at(row) = {.kept = first_of(row, length)};
  }
  RowId fork(RowId row, int64_t length) {
    const RowId branch = cache_.fork(row, length);
    rows_[branch] = {.kept = first_of(row, length)};
    return branch;
  }
  void close(RowId row) {
    cache_.close(row);
    rows_.erase(row);
  }
  /// A row gets what another one has kept, by a snapshot or its copy.
  void restore(RowId from, RowId to, int64_t length, bool copied) {
    const auto snapshot = cache_.snapshot(from);
    const Row kept{.kept = first_of(from, length)};
    const KvCopies copies(snapshot->copy(), snapshot->length(), snapshot->shortest_length());
    cache_.restore(to, copied ? static_cast<const KvSnapshot&>(copies) : *snapshot, length);
    rows_[to] = kept;
  }

  void check() const {
    for (const auto& [row, owner] : rows_) {
      const auto length = std::ssize(owner.kept);
      ASSERT_EQ(cache_.length(row), length);
      for (int64_t layer = 0; layer < 3 && length > 0; ++layer) {
        const int64_t own = layer == 1 ? 1 : 0;
        const LayerKv geometry = grouped_layers()[static_cast<size_t>(own)];
        const Tensor all = numbers(own).index_select(0, at::tensor(owner.kept, at::kLong));
        const auto [keys, values] = cache_.key_values(layer, row);
        check_form(geometry, keys, all.narrow(1, geometry.kv_heads, geometry.kv_heads),
                   rounded_keys);
        check_form(geometry, values, all.slice(1, 2 * geometry.kv_heads), rounded_values);
        const int64_t some = length / 3;  // not at a group's border
        EXPECT_TRUE(at::equal(cache_.key_values(layer, row, {some, length}).first.nan_to_num(7),
                              keys.slice(1, some).nan_to_num(7)));
      }
    }
  }

  /// Whether the pending nodes are one chain.
  bool is_chain(RowId row) const {
    const std::vector<int64_t>& parents = rows_.at(row).parents;
    std::vector<int64_t> chain(parents.size());
    std::iota(chain.begin(), chain.end(), int64_t{-1});
    return parents == chain;
  }

  KvCache& cache() { return cache_; }
  /// Lets nodes that come read the cache, too.
  void attend() { attends_ = true; }
  /// What those that came last read of a layer.
  const Tensor& read(size_t layer) const { return read_[layer]; }
  const std::map<RowId, Row>& rows() const { return rows_; }

 private:
  const Tensor& numbers(int64_t layer) const { return numbers_[static_cast<size_t>(layer)]; }
  std::vector<int64_t> first_of(RowId row, int64_t length) const {
    const std::vector<int64_t>& kept = rows_.at(row).kept;
    return {kept.begin(), kept.begin() + length};
  }

  /// `exact`: [tokens, kv_heads, head_dim]; those that the row's last token reads in the format are
  /// rounded.
  template <class Round>
  void check_form(const LayerKv& layer, const Tensor& held, Tensor exact,
                  const Round& round) const {
    const int64_t length = exact.size(0);
    const int64_t recent =
        layer.window > 0 ? std::min(layer.window, options_.exact_recent) : options_.exact_recent;
    const int64_t border = std::max<int64_t>(0, length - recent) / kKeyGroup * kKeyGroup;
    const Tensor rounded = round(options_.format, exact);
    const Tensor expected =
        at::cat({rounded.narrow(0, 0, border), exact.slice(0, border)}).transpose(0, 1);
    const int64_t missing = held[0].isnan().all(1).sum().template item<int64_t>();
    EXPECT_LE(missing, layer.window == 0 ? 0 : std::max<int64_t>(0, length - layer.window));
    EXPECT_TRUE(at::equal(held.slice(1, missing), expected.slice(1, missing))) << length;
  }

  KvCacheOptions options_;
  KvCache cache_;
  std::shared_ptr<Ops> ops_;
  bool attends_ = false;
  std::array<Tensor, 2> read_;
  std::vector<Tensor> numbers_;  // of layers of their own, [tokens, queries, keys and values, dim]
  std::map<RowId, Row> rows_;
  int64_t next_ = 0;
};

/// One change of a random row.
inline void change_grouped(GroupedCache& model, std::mt19937& random) {
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  const std::vector<RowId> rows = model.cache().rows();
  const RowId row = rows[static_cast<size_t>(below(std::ssize(rows)))];
  const int64_t length = model.cache().length(row);
  const int64_t pending = model.cache().pending(row);
  const int64_t cut = model.cache().rewindable_to(row, std::max<int64_t>(0, length - below(20)));
  if (length + pending + 70 > kGroupedLength) {
    return model.truncate(row, 0);
  }
  switch (below(10)) {
    case 0:
    case 1:
      if (model.is_chain(row)) {
        model.extend_chain(row, 1 + below(70));
      }
      return;
    case 2:
    case 3: {
      if (pending > 20) {
        return;
      }
      std::vector<int64_t> parents;
      for (int64_t node = pending; node < pending + 9; ++node) {
        parents.push_back(std::max<int64_t>(-1, node - 1 - below(3)));
      }
      return model.extend(row, parents);
    }
    case 4:
    case 5:
    case 6:
      return model.commit(row, pending - 1 - (below(2) == 0 ? 0 : below(pending + 1)));
    case 7:
      return below(2) == 0 ? model.truncate(row, cut) : model.truncate(row, length);
    case 8:
      if (rows.size() < 4) {
        model.fork(row, cut);
      } else if (row != 0) {
        model.close(row);
      }
      return;
    default:
      model.truncate(row, length);
      return below(2) == 0 ? model.append(row, 1 + below(60))
                           : model.restore(row, rows.back(), cut, below(2) == 0);
  }
}

/// A row's last token reads what the formula says of the row's tokens alone, whatever has become of
/// the rows: chains whose groups end while they are pending, trees whose paths move, forks,
/// snapshots and what is appended.
inline void expect_numbers_of_the_formula(uint32_t seed, const std::shared_ptr<Ops>& ops,
                                          int steps) {
  at::manual_seed(seed);
  std::mt19937 random(seed);
  KvCacheOptions options =
      grouped_options(seed % 2 == 0 ? KvFormat::kKivi2 : KvFormat::kKivi4, 32 + seed % 3 * 9,
                      seed % 3 == 2 ? 0 : 1 + seed * 7, kKeyGroup * (1 + seed % 3));
  options.as_device = seed % 4 == 3;
  GroupedCache model(options, ops);
  for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) {
    change_grouped(model, random);
    if (step % 5 == 0) {
      model.check();
    }
  }
  ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
}

}  // namespace specdec
