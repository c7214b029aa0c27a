#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kv/kv_cache.h"

namespace specdec {

constexpr int64_t kMaxLength = 40;

inline std::vector<LayerKv> three_layers() {
  return {{1, 2, 0, -1}, {2, 34, 4, -1}, {1, 2, 0, 0}};  // the last reads the first's
}

inline KvCacheOptions small_pages(KvFormat format = KvFormat::kNative) {
  return {.dtype = at::kFloat,
          .format = format,
          .device = at::kCPU,
          .page_size = 4,
          .max_length = kMaxLength};
}

/// Formats that hold a head of exact_number() exactly; kv/ moves the bytes of all alike.
constexpr KvFormat kExactFormats[] = {KvFormat::kNative,  KvFormat::kBFloat16, KvFormat::kFloat16,
                                      KvFormat::kFp8E4m3, KvFormat::kQ8,       KvFormat::kQ4};

/// Another number for each index, which the format holds exactly; those of fewer bits begin again
/// after 28.
inline float exact_number(KvFormat format, int64_t index) {
  if (format == KvFormat::kNative || format == KvFormat::kBFloat16) {
    return std::ldexp(128.0F + static_cast<float>(index % 128), static_cast<int>(index / 128) - 60);
  }
  return std::ldexp(1.0F + static_cast<float>(index % 7), static_cast<int>(index / 7 % 4));
}

constexpr float kSecondLayer = 4.0F;  // what it holds is a multiple of the first's numbers
constexpr float kExactForm = 3.0F;    // and of exact pages, so that it shows which are read

/// New nodes and what they borrow.
struct NodeBatch {
  int64_t count = 0;
  std::vector<int64_t> rows = {};
  std::vector<int64_t> parents = {};

  NewNodes nodes() const { return {.count = count, .rows = rows, .parents = parents}; }
};

inline NodeBatch batch_of(std::vector<int64_t> rows, std::vector<int64_t> parents,
                          int64_t nodes = -1) {
  nodes = nodes >= 0 ? nodes : static_cast<int64_t>(std::max(rows.size(), parents.size()));
  return {nodes, std::move(rows), std::move(parents)};
}

inline NodeBatch chain(int64_t nodes) { return batch_of({}, {}, nodes); }

inline std::vector<int64_t> first_nodes(int64_t count) {
  std::vector<int64_t> path(static_cast<size_t>(count));
  std::iota(path.begin(), path.end(), 0);
  return path;
}

inline std::vector<int32_t> entries(const Tensor& table, int64_t count) {
  const int32_t* data = table.const_data_ptr<int32_t>();
  return {data, data + count};
}

/// Slots of the pending nodes that new node `index` sees, in the order of their positions.
inline std::vector<int32_t> visible(const BatchTables& tables, int64_t index) {
  const int32_t row = tables.rows.const_data_ptr<int32_t>()[index];
  const int32_t length = tables.lengths.const_data_ptr<int32_t>()[row];
  const int32_t start = tables.path_starts.const_data_ptr<int32_t>()[index];
  const int32_t position = tables.positions.const_data_ptr<int32_t>()[index];
  const size_t count = static_cast<size_t>(position) - static_cast<size_t>(length) + 1;
  std::vector<int32_t> slots(count);
  if (start < 0) {
    std::iota(slots.begin(), slots.end(), length);
  } else {
    std::copy_n(tables.paths.const_data_ptr<int32_t>() + start, count, slots.begin());
  }
  return slots;
}

/// Pages of keys and values in a format.
struct WrittenForm {
  KvFormat format;
  const Tensor& all_keys;
  const Tensor& all_values;
};

/// Writes one number into all keys and its negative into all values of a slot of a page.
inline void write_number(const WrittenForm& form, int64_t page, int64_t in_page, float number) {
  ASSERT_GE(page, 0) << "given back";
  ASSERT_LT(page, form.all_keys.size(0));
  const int64_t head_dim = kv_head_dim(form.format, form.all_values.size(3));
  const std::vector<float> keys(static_cast<size_t>(head_dim), number);
  const std::vector<float> values(keys.size(), -number);
  for (int64_t head = 0; head < form.all_keys.size(1); ++head) {
    const Tensor key = form.all_keys[page][head].select(1, in_page);
    encode_kv(form.format, keys.data(), head_dim, {key.mutable_data_ptr(), form.all_keys.size(3)});
    const Tensor value = form.all_values[page][head][in_page];
    encode_kv(form.format, values.data(), head_dim, {value.mutable_data_ptr(), 1});
  }
}

/// Writes a number into a slot of the row at a place of the tables, as a kernel would: a head's
/// numbers are equal, so that all formats hold them exactly.
inline void write_slot(const KvCache& cache, int64_t layer, int64_t place, int64_t slot,
                       float number) {
  const KvView view = cache.view(layer);
  const int64_t entry = place * view.page_stride() + slot / view.page_size();
  const int64_t in_page = slot % view.page_size();
  write_number({view.format, view.keys, view.values}, view.page_table()[entry], in_page, number);
  if (view.exact.recent > 0) {
    write_number({KvFormat::kNative, view.exact.keys, view.exact.values},
                 view.exact_page_table()[entry], in_page, number * kExactForm);
  }
}

/// Tables of the newest extend.
inline const BatchTables& tables_of(const KvCache& cache) { return *cache.describe(0).tables; }

/// A cache and what it should hold, kept the slow way. Every node gets a number of its own.
class CacheModel {
 public:
  explicit CacheModel(const KvCacheOptions& options = small_pages())
      : cache_(three_layers(), options),
        format_(options.format),
        has_slack_(options.window_slack > 0),
        rows_{{0, {}}} {}

  struct Node {
    int64_t parent;
    float number;
  };
  struct Row {
    std::vector<float> kept = {};
    std::vector<Node> pending = {};
  };

  void extend(const NodeBatch& batch) {
    cache_.extend(batch.nodes());
    const BatchTables& tables = tables_of(cache_);
    ASSERT_EQ(tables.nodes, batch.count);
    for (int64_t i = 0; i < tables.nodes; ++i) {
      const RowId row = row_of(batch, i);
      Row& owner = rows_.at(row);
      const auto index = static_cast<int64_t>(owner.pending.size());
      const int64_t parent =
          batch.parents.empty() ? index - 1 : batch.parents[static_cast<size_t>(i)];
      owner.pending.push_back({parent, exact_number(format_, next_number_++)});
      check_node(row, index, i);
    }
    for (int64_t i = 0; i < tables.nodes; ++i) {
      const int64_t place = tables.rows.const_data_ptr<int32_t>()[i];
      const int64_t slot = tables.slots.const_data_ptr<int32_t>()[i];
      const Row& owner = rows_.at(row_of(batch, i));
      const Node& node = owner.pending[static_cast<size_t>(slot) - owner.kept.size()];
      write_slot(cache_, 0, place, slot, node.number);
      write_slot(cache_, 1, place, slot, node.number * kSecondLayer);
    }
  }

  void commit(RowId row, const std::vector<int64_t>& path) {
    cache_.commit(row, path);
    Row& owner = rows_.at(row);
    for (const int64_t node : path) {
      owner.kept.push_back(owner.pending[static_cast<size_t>(node)].number);
    }
    owner.pending.clear();
  }

  void truncate(RowId row, int64_t length) {
    cache_.truncate(row, length);
    rows_.at(row).kept.resize(static_cast<size_t>(length));
    rows_.at(row).pending.clear();
  }

  RowId open() {
    const RowId row = cache_.open();
    EXPECT_TRUE(rows_.try_emplace(row).second) << "a name that was given before";
    return row;
  }

  RowId fork(RowId row, int64_t length) {
    const RowId branch = cache_.fork(row, length);
    const std::vector<float>& kept = rows_.at(row).kept;
    const Row begun = {.kept = {kept.begin(), kept.begin() + length}};
    EXPECT_TRUE(rows_.try_emplace(branch, begun).second) << "a name that was given before";
    return branch;
  }

  void close(RowId row) {
    cache_.close(row);
    rows_.erase(row);
  }

  /// The row holds these first tokens of a snapshot.
  void restore(RowId row, const KvSnapshot& snapshot, std::vector<float> tokens) {
    cache_.restore(row, snapshot, std::ssize(tokens));
    rows_.at(row) = {.kept = std::move(tokens)};
  }

  /// A copy of a row, which steps leave alone.
  RowId set_aside(RowId row) {
    aside_.push_back(cache_.fork(row, cache_.length(row)));
    return aside_.back();
  }

  std::vector<int64_t> path_to(RowId row, int64_t node) const {
    std::vector<int64_t> path;
    for (; node >= 0; node = rows_.at(row).pending[static_cast<size_t>(node)].parent) {
      path.insert(path.begin(), node);
    }
    return path;
  }

  /// Compares everything that the cache holds.
  void check() const {
    std::vector<RowId> all = names();
    all.insert(all.end(), aside_.begin(), aside_.end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(cache_.rows(), all);
    for (const auto& [row, owner] : rows_) {
      ASSERT_EQ(cache_.length(row), static_cast<int64_t>(owner.kept.size()));
      ASSERT_EQ(cache_.pending(row), static_cast<int64_t>(owner.pending.size()));
      for (int64_t layer = 0; layer < 3; ++layer) {
        const Tensor numbers = at::tensor(owner.kept, at::kFloat).view({1, -1, 1});
        const int64_t recent = std::min(cache_.view(layer).exact.recent, numbers.size(1));
        numbers.narrow(1, numbers.size(1) - recent, recent).mul_(kExactForm);
        const auto [all_keys, all_values] = cache_.key_values(layer, row);
        const int64_t first = check_given_back(all_keys, layer);
        const auto left = [first](const Tensor& all) {
          return all.narrow(1, first, all.size(1) - first);
        };
        const Tensor keys = left(all_keys);
        const Tensor wanted =
            left((layer == 1 ? numbers * kSecondLayer : numbers).expand_as(all_keys));
        ASSERT_TRUE(at::equal(keys, wanted)) << "row " << row << ", layer " << layer;
        ASSERT_TRUE(at::equal(left(all_values), -wanted));
      }
    }
  }

  const KvCache& cache() const { return cache_; }
  KvCache& cache() { return cache_; }
  const std::map<RowId, Row>& rows() const { return rows_; }
  std::vector<RowId> names() const {
    std::vector<RowId> names;
    for (const auto& [row, owner] : rows_) {
      names.push_back(row);
    }
    return names;
  }

 private:
  static RowId row_of(const NodeBatch& batch, int64_t node) {
    return batch.rows.empty() ? 0 : batch.rows[static_cast<size_t>(node)];
  }

  /// The first token that is there; those before must lie outside the windows of all that may come.
  int64_t check_given_back(const Tensor& keys, int64_t layer) const {
    const int64_t first = keys[0].isnan().all(1).sum().item<int64_t>();
    EXPECT_TRUE(first == 0 || (layer == 1 && has_slack_)) << "layer " << layer;
    EXPECT_LE(first, std::max<int64_t>(0, keys.size(1) - three_layers()[1].window));
    return first;
  }

  void check_node(RowId row, int64_t index, int64_t batch_index) const {
    const BatchTables& tables = tables_of(cache_);
    const auto length = static_cast<int64_t>(rows_.at(row).kept.size());
    const std::vector<int64_t> path = path_to(row, index);
    const int64_t position = length + static_cast<int64_t>(path.size()) - 1;
    const int64_t place = tables.rows.const_data_ptr<int32_t>()[batch_index];
    ASSERT_LT(place, tables.lengths.size(0));
    EXPECT_EQ(tables.slots.const_data_ptr<int32_t>()[batch_index], length + index);
    EXPECT_EQ(tables.positions.const_data_ptr<int32_t>()[batch_index], position);
    EXPECT_EQ(tables.lengths.const_data_ptr<int32_t>()[place], length);
    std::vector<int32_t> slots;
    for (const int64_t above : path) {
      slots.push_back(static_cast<int32_t>(length + above));
    }
    EXPECT_EQ(visible(tables, batch_index), slots);
  }

  KvCache cache_;
  KvFormat format_;
  bool has_slack_;
  std::map<RowId, Row> rows_;
  std::vector<RowId> aside_;
  int64_t next_number_ = 0;
};

/// Random batch over some of the rows, in any order; each row stays short enough.
inline NodeBatch random_batch(const CacheModel& model, std::mt19937& random) {
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  NodeBatch batch;
  std::vector<RowId> rows = model.names();
  std::shuffle(rows.begin(), rows.end(), random);
  for (const RowId row : rows) {
    const int64_t pending = model.cache().pending(row);
    const int64_t room = kMaxLength - model.cache().length(row) - pending;
    if (room == 0 || (row > 0 && below(2) == 0)) {
      continue;
    }
    const int64_t count = 1 + below(std::min<int64_t>(room, 9));
    for (int64_t i = 0; i < count; ++i) {
      batch.rows.push_back(row);
      batch.parents.push_back(below(pending + i + 1) - 1);
    }
  }
  batch.count = std::ssize(batch.rows);
  return batch;
}

inline void random_step(CacheModel& model, std::mt19937& random, bool extends = true) {
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  const std::vector<RowId> rows = model.names();
  const RowId row = rows[static_cast<size_t>(below(std::ssize(rows)))];
  const auto any_length = [&] {
    return model.cache().rewindable_to(row, below(model.cache().length(row) + 1));
  };
  const int64_t choice = extends ? below(12) : 5 + below(7);
  if (choice < 5) {
    model.extend(random_batch(model, random));
  } else if (choice < 8) {
    model.commit(row, model.path_to(row, below(model.cache().pending(row) + 1) - 1));
  } else if (choice == 8) {
    model.truncate(row, any_length());
  } else if (choice == 9 && row != 0) {
    model.close(row);
  } else if (rows.size() < 4 && choice == 10) {
    model.open();
  } else if (rows.size() < 4) {
    model.fork(row, any_length());
  }
}

/// Some move of the pages of a row, one that waits or not, between the tiers of the cache.
inline void random_move(const KvCache& cache, std::mt19937& random) {
  RowTiers& tiers = *cache.row_tiers();
  const std::vector<RowId> rows = cache.rows();
  const RowId row = rows[random() % rows.size()];
  const TierBytes before = tiers.bytes(row);
  int64_t moved = 0;
  switch (random() % 5) {
    case 0:
      tiers.prefetch_async(row);
      break;
    case 1:
      moved = tiers.promote(row);
      EXPECT_GE(moved, tiers.bytes(row).memory - before.memory);
      EXPECT_GE(tiers.bytes(row).memory, before.memory);
      break;
    case 2:
      (void)tiers.manage_tiers();
      break;
    default:
      moved = tiers.demote(row);
      EXPECT_GE(moved, before.memory - tiers.bytes(row).memory);
      EXPECT_LE(tiers.bytes(row).memory, before.memory);
  }
}

/// Random steps, beside which copies of row 0 lie idle and are restored, each checked; with
/// `moves` after some random_move().
inline void random_history(CacheModel& model, std::mt19937& random, int steps, bool moves = false) {
  std::vector<std::pair<RowId, std::vector<float>>> idle;  // rows that forwards do not use
  for (int step = 0; step < steps; ++step) {
    random_step(model, random);
    if (step % 7 == 0) {
      idle.emplace_back(model.set_aside(0), model.rows().at(0).kept);
    } else if (step % 11 == 0 && !idle.empty()) {
      const auto& [row, tokens] = idle[random() % idle.size()];
      model.restore(0, *model.cache().snapshot(row), tokens);
    }
    for (auto left = moves ? random() % 3 : 0; left > 0; --left) {
      random_move(model.cache(), random);
    }
    model.check();
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

}  // namespace specdec
