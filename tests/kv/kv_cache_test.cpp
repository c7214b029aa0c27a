#include "kv/kv_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "core/error.h"

namespace specdec {
namespace {

constexpr int64_t kMaxLength = 40;

std::vector<LayerKv> three_layers() {
  return {{1, 2, 0, -1}, {2, 3, 4, -1}, {1, 2, 0, 0}};  // the last reads the first's
}

KvCacheOptions small_pages(KvFormat format = KvFormat::kNative) {
  return {.dtype = at::kFloat,
          .format = format,
          .device = at::kCPU,
          .page_size = 4,
          .max_length = kMaxLength};
}

/// Another number for each index, which bfloat16 holds exactly.
float exact_number(int64_t index) {
  return std::ldexp(128.0F + static_cast<float>(index % 128), static_cast<int>(index / 128) - 60);
}

constexpr float kSecondLayer = 0x1p40F;  // what it holds is a multiple of the first's numbers

TokenBatch batch_of(std::vector<int64_t> rows, std::vector<int64_t> parents, int64_t nodes = -1) {
  nodes = nodes >= 0 ? nodes : static_cast<int64_t>(std::max(rows.size(), parents.size()));
  return {at::zeros({nodes}, at::kInt), std::move(rows), std::move(parents)};
}

TokenBatch chain(int64_t nodes) { return batch_of({}, {}, nodes); }

std::vector<int64_t> first_nodes(int64_t count) {
  std::vector<int64_t> path(static_cast<size_t>(count));
  std::iota(path.begin(), path.end(), 0);
  return path;
}

std::vector<int32_t> entries(const Tensor& table, int64_t count) {
  const int32_t* data = table.const_data_ptr<int32_t>();
  return {data, data + count};
}

/// Slots of the pending nodes that new node `index` sees, in the order of their positions.
std::vector<int32_t> visible(const BatchTables& tables, int64_t index) {
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

/// Writes one number into all keys and its negative into all values of a slot, as a kernel would.
void write_slot(const KvCache& cache, int64_t layer, int64_t row, int64_t slot, float number) {
  const KvView view = cache.view(layer);
  const BatchTables& tables = *view.tables;
  const int32_t* pages = tables.page_table.const_data_ptr<int32_t>();
  const int64_t page_size = view.page_size();
  const int64_t page = pages[row * tables.page_table.size(1) + slot / page_size];
  ASSERT_LT(page, view.keys.size(0));
  view.keys.select(0, page).select(2, slot % page_size).fill_(number);
  view.values.select(0, page).select(1, slot % page_size).fill_(-number);
}

/// What the cache should hold, kept the slow way. Every node gets a number of its own.
class Model {
 public:
  explicit Model(const KvCacheOptions& options = small_pages()) : cache_(three_layers(), options) {}

  struct Node {
    int64_t parent;
    float number;
  };
  struct Row {
    std::vector<float> kept;
    std::vector<Node> pending;
  };

  void extend(const TokenBatch& batch) {
    cache_.extend(batch);
    const BatchTables& tables = cache_.tables();
    ASSERT_EQ(tables.nodes, batch.tokens.size(0));
    for (int64_t i = 0; i < tables.nodes; ++i) {
      const int64_t row = batch.rows.empty() ? 0 : batch.rows[static_cast<size_t>(i)];
      if (row >= static_cast<int64_t>(rows_.size())) {
        rows_.resize(static_cast<size_t>(row) + 1);
      }
      Row& owner = rows_[static_cast<size_t>(row)];
      const auto index = static_cast<int64_t>(owner.pending.size());
      const int64_t parent =
          batch.parents.empty() ? index - 1 : batch.parents[static_cast<size_t>(i)];
      owner.pending.push_back({parent, exact_number(next_number_++)});
      check_node(row, index, i);
    }
    for (int64_t i = 0; i < tables.nodes; ++i) {
      const int64_t row = tables.rows.const_data_ptr<int32_t>()[i];
      const int64_t slot = tables.slots.const_data_ptr<int32_t>()[i];
      const Row& owner = rows_[static_cast<size_t>(row)];
      const Node& node = owner.pending[static_cast<size_t>(slot) - owner.kept.size()];
      write_slot(cache_, 0, row, slot, node.number);
      write_slot(cache_, 1, row, slot, node.number * kSecondLayer);
    }
  }

  void commit(int64_t row, const std::vector<int64_t>& path) {
    cache_.commit(row, path);
    Row& owner = rows_[static_cast<size_t>(row)];
    for (const int64_t node : path) {
      owner.kept.push_back(owner.pending[static_cast<size_t>(node)].number);
    }
    owner.pending.clear();
  }

  void truncate(int64_t row, int64_t length) {
    cache_.truncate(row, length);
    rows_[static_cast<size_t>(row)].kept.resize(static_cast<size_t>(length));
    rows_[static_cast<size_t>(row)].pending.clear();
  }

  void reorder(const std::vector<int64_t>& parents) {
    cache_.reorder(parents);
    std::vector<Row> reordered;
    reordered.reserve(parents.size());
    for (const int64_t parent : parents) {
      reordered.push_back({rows_[static_cast<size_t>(parent)].kept, {}});
    }
    rows_ = std::move(reordered);
  }

  std::vector<int64_t> path_to(int64_t row, int64_t node) const {
    std::vector<int64_t> path;
    for (; node >= 0;
         node = rows_[static_cast<size_t>(row)].pending[static_cast<size_t>(node)].parent) {
      path.insert(path.begin(), node);
    }
    return path;
  }

  /// Compares everything that the cache holds.
  void check() const {
    ASSERT_EQ(cache_.rows(), static_cast<int64_t>(rows_.size()));
    for (int64_t row = 0; row < cache_.rows(); ++row) {
      const Row& owner = rows_[static_cast<size_t>(row)];
      ASSERT_EQ(cache_.length(row), static_cast<int64_t>(owner.kept.size()));
      ASSERT_EQ(cache_.pending(row), static_cast<int64_t>(owner.pending.size()));
      const Tensor numbers = at::tensor(owner.kept, at::kFloat).view({1, -1, 1});
      for (int64_t layer = 0; layer < 3; ++layer) {
        const auto [keys, values] = cache_.key_values(layer, row);
        const Tensor wanted = (layer == 1 ? numbers * kSecondLayer : numbers).expand_as(keys);
        ASSERT_TRUE(at::equal(keys, wanted)) << "row " << row << ", layer " << layer;
        ASSERT_TRUE(at::equal(values, -wanted));
      }
    }
  }

  const KvCache& cache() const { return cache_; }
  KvCache& cache() { return cache_; }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  void check_node(int64_t row, int64_t index, int64_t batch_index) const {
    const BatchTables& tables = cache_.tables();
    const auto length = static_cast<int64_t>(rows_[static_cast<size_t>(row)].kept.size());
    const std::vector<int64_t> path = path_to(row, index);
    const int64_t position = length + static_cast<int64_t>(path.size()) - 1;
    EXPECT_EQ(tables.rows.const_data_ptr<int32_t>()[batch_index], row);
    EXPECT_EQ(tables.slots.const_data_ptr<int32_t>()[batch_index], length + index);
    EXPECT_EQ(tables.positions.const_data_ptr<int32_t>()[batch_index], position);
    EXPECT_EQ(tables.lengths.const_data_ptr<int32_t>()[row], length);
    std::vector<int32_t> slots;
    for (const int64_t above : path) {
      slots.push_back(static_cast<int32_t>(length + above));
    }
    EXPECT_EQ(visible(tables, batch_index), slots);
  }

  KvCache cache_;
  std::vector<Row> rows_;
  int64_t next_number_ = 0;
};

/// A random batch over some of the rows, perhaps a new one; each row stays short enough.
TokenBatch random_batch(const Model& model, std::mt19937& random) {
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  TokenBatch batch;
  const int64_t rows = std::min<int64_t>(model.cache().rows() + 1, 4);
  for (int64_t row = 0; row < rows; ++row) {
    const bool fresh = row == model.cache().rows();
    const int64_t pending = model.cache().pending(row);
    const int64_t room = kMaxLength - model.cache().length(row) - pending;
    if (room == 0 || (row > 0 && below(fresh ? 4 : 2) == 0)) {
      continue;
    }
    const int64_t count = 1 + below(std::min<int64_t>(room, 9));
    for (int64_t i = 0; i < count; ++i) {
      batch.rows.push_back(row);
      batch.parents.push_back(below(pending + i + 1) - 1);
    }
  }
  batch.tokens = at::zeros({static_cast<int64_t>(batch.rows.size())}, at::kInt);
  return batch;
}

void random_step(Model& model, std::mt19937& random) {
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  const int64_t rows = model.cache().rows();
  const int64_t choice = rows == 0 ? 0 : below(10);
  if (choice < 5) {
    model.extend(random_batch(model, random));
  } else if (choice < 8) {
    const int64_t row = below(rows);
    model.commit(row, model.path_to(row, below(model.cache().pending(row) + 1) - 1));
  } else if (choice == 8) {
    const int64_t row = below(rows);
    model.truncate(row, below(model.cache().length(row) + 1));
  } else {
    std::vector<int64_t> parents(static_cast<size_t>(1 + below(4)));
    for (int64_t& parent : parents) {
      parent = below(rows);
    }
    model.reorder(parents);
  }
}

class KvCacheFormatTest : public testing::TestWithParam<KvFormat> {};

TEST_P(KvCacheFormatTest, RandomHistoriesHoldWhatTheyShould) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    KvCacheOptions options = small_pages(GetParam());
    options.as_device = seed % 2 == 1;
    Model model(options);
    for (int step = 0; step < 80; ++step) {
      random_step(model, random);
      if (testing::Test::HasFailure()) {
        return;
      }
      model.check();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, KvCacheFormatTest,
                         testing::Values(KvFormat::kNative, KvFormat::kBFloat16),
                         [](const auto& info) {
                           return info.param == KvFormat::kNative ? "native" : "bfloat16";
                         });

TEST(KvCacheTest, PendingNodesSeeTheirAncestorsOverForwards) {
  Model model;
  model.extend(chain(33));
  model.extend(batch_of({}, {32, 33, 10, 31, -1}));
  const BatchTables& tables = model.cache().tables();
  EXPECT_EQ(visible(tables, 1).size(), 35U);
  EXPECT_EQ(visible(tables, 2).size(), 12U);
  EXPECT_EQ(visible(tables, 4), std::vector<int32_t>{37});
  EXPECT_LT(tables.path_starts.const_data_ptr<int32_t>()[1], 0) << "the chain goes on";
}

TEST(KvCacheTest, BFloat16TakesHalfTheBytesAndIsReadAsTheActivations) {
  KvCache native(three_layers(), small_pages());
  KvCache half(three_layers(), small_pages(KvFormat::kBFloat16));
  for (KvCache* cache : {&native, &half}) {
    cache->extend(chain(5));
    cache->commit(0, first_nodes(5));
  }
  EXPECT_EQ(2 * half.allocated_bytes(), native.allocated_bytes());
  EXPECT_EQ(half.view(0).keys.scalar_type(), at::kBFloat16);
  EXPECT_EQ(half.key_values(0, 0).first.scalar_type(), at::kFloat);
}

TEST(KvCacheTest, RefusesBFloat16BesideFloat64) {
  KvCacheOptions options = small_pages(KvFormat::kBFloat16);
  options.dtype = at::kDouble;
  try {
    const KvCache cache(three_layers(), options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("needs float32 activations"), std::string::npos)
        << error.what();
  }
}

TEST(KvCacheTest, EmptyParentsContinueEachRowAfterItsLastPendingNode) {
  KvCache cache(three_layers(), small_pages());
  cache.extend(batch_of({0, 0, 1}, {}));
  EXPECT_EQ(entries(cache.tables().positions, 3), (std::vector<int32_t>{0, 1, 0}));
  cache.commit(1, first_nodes(1));
  cache.extend(batch_of({0, 1, 1}, {}));
  EXPECT_EQ(entries(cache.tables().positions, 3), (std::vector<int32_t>{2, 1, 2}));
  EXPECT_EQ(entries(cache.tables().slots, 3), (std::vector<int32_t>{2, 1, 2}));
  EXPECT_EQ(visible(cache.tables(), 0), (std::vector<int32_t>{0, 1, 2}));
}

TEST(KvCacheTest, SharedPagesAreCopiedOnWriteOnly) {
  Model model;
  model.extend(chain(6));
  model.commit(0, first_nodes(6));
  model.reorder({0, 0, 0});
  const int64_t bytes = model.cache().allocated_bytes();
  model.check();
  EXPECT_EQ(model.cache().allocated_bytes(), bytes) << "sharing costs no page";
  model.extend(batch_of({0, 1, 1, 2}, {-1, -1, 0, -1}));
  const int32_t* pages = model.cache().tables().page_table.const_data_ptr<int32_t>();
  const int64_t stride = model.cache().tables().page_table.size(1);
  EXPECT_EQ(pages[0], pages[stride]) << "the full page stays shared";
  EXPECT_NE(pages[1], pages[stride + 1]);
  model.commit(1, {0, 1});
  model.commit(0, {0});
  model.commit(2, {});
  model.check();
}

TEST(KvCacheTest, DecodingDoesNotAllocateEachStep) {
  KvCache cache(three_layers(), small_pages());
  cache.extend(chain(8));
  cache.commit(0, first_nodes(8));
  const void* tables = cache.tables().slots.const_data_ptr();
  const void* keys = cache.view(0).keys.const_data_ptr();
  int64_t moved = 0;
  for (int step = 0; step < 24; ++step) {
    cache.extend(chain(1));
    EXPECT_EQ(cache.tables().slots.const_data_ptr(), tables);
    moved += cache.view(0).keys.const_data_ptr() == keys ? 0 : 1;
    keys = cache.view(0).keys.const_data_ptr();
    cache.commit(0, first_nodes(1));
  }
  EXPECT_LE(moved, 2) << "pools grow by doubling";
}

TEST(KvCacheTest, ALayerMayReadAnothersPool) {
  KvCache cache(three_layers(), small_pages());
  cache.extend(chain(1));
  EXPECT_EQ(cache.view(2).keys.const_data_ptr(), cache.view(0).keys.const_data_ptr());
  EXPECT_EQ(cache.view(1).window, 4);
  const int64_t pages = cache.view(0).keys.size(0);
  EXPECT_EQ(cache.allocated_bytes(), pages * 4 * (2 + 6) * 2 * 4);
}

TEST(KvCacheTest, TruncateForgetsPendingNodesToo) {
  Model model;
  model.extend(chain(5));
  model.commit(0, first_nodes(5));
  model.extend(chain(3));
  model.truncate(0, 5);
  EXPECT_EQ(model.cache().pending(0), 0);
  model.extend(chain(2));
  model.truncate(0, 1);
  model.extend(batch_of({}, {-1, 0, 0}));
  model.commit(0, {0, 2});
  model.check();
}

TEST(KvCacheTest, RefusedBatchesChangeNothing) {
  Model model;
  model.extend(chain(3));
  model.commit(0, first_nodes(3));
  model.extend(chain(2));
  KvCache& cache = model.cache();
  const TokenBatch bad[] = {
      batch_of({}, {2}),           // follows itself
      batch_of({}, {-2}),          //
      batch_of({}, {1, 4}),        // follows a later node
      batch_of({0, 1}, {-1, 0}),   // row 1 has no node 0
      batch_of({1, 0}, {-1, -1}),  // rows descend
      batch_of({0, 2}, {-1, -1}),  // no row 1
      batch_of({-1}, {-1}),        //
      batch_of({0, 0}, {-1}, 2),   // a parent is missing
      batch_of({0}, {-1, -1}, 2),  // a row is missing
  };
  for (const TokenBatch& batch : bad) {
    EXPECT_THROW(cache.extend(batch), InternalError);
    model.check();
  }
  EXPECT_THROW(cache.extend({}), InternalError);
  EXPECT_THROW(cache.extend(chain(kMaxLength - 4)), Error);
  EXPECT_THROW(cache.extend(batch_of({0, 1, 1}, {-1, -1, 7})), InternalError);
  model.check();
  model.extend(chain(kMaxLength - 5));
}

TEST(KvCacheTest, UndoTakesBackTheNewestExtendOnly) {
  KvCache cache(three_layers(), small_pages());
  cache.extend(chain(3));
  cache.commit(0, first_nodes(3));
  cache.extend(chain(2));
  cache.extend(batch_of({0, 0, 1}, {0, 2, -1}));
  EXPECT_EQ(cache.rows(), 2);
  cache.undo_extend();
  EXPECT_EQ(cache.rows(), 1);
  EXPECT_EQ(cache.length(0), 3);
  EXPECT_EQ(cache.pending(0), 2);
  cache.extend(batch_of({0, 1}, {1, -1}));
  EXPECT_EQ(visible(cache.tables(), 0), (std::vector<int32_t>{3, 4, 5}));
  EXPECT_EQ(entries(cache.tables().positions, 2), (std::vector<int32_t>{5, 0}));
  cache.commit(0, first_nodes(3));
  EXPECT_EQ(cache.length(0), 6);
}

TEST(KvCacheTest, TooLongASequenceSaysHowLong) {
  KvCache cache(three_layers(), small_pages());
  try {
    cache.extend(chain(kMaxLength + 1));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("41 tokens exceeds the model's max_length 40"),
              std::string::npos)
        << error.what();
  }
}

TEST(KvCacheTest, RefusesWhatIsNotAPath) {
  Model model;
  model.extend(batch_of({}, {-1, 0, 0, -1}));
  KvCache& cache = model.cache();
  for (const std::vector<int64_t>& path :
       {std::vector<int64_t>{1}, {0, 3}, {0, 1, 2}, {0, 0}, {4}, {-1}, {3, 0}}) {
    EXPECT_THROW(cache.commit(0, path), InternalError);
  }
  EXPECT_THROW(cache.commit(1, std::vector<int64_t>{0}), InternalError);
  EXPECT_THROW(cache.truncate(0, 1), InternalError);
  EXPECT_THROW(cache.truncate(0, -1), InternalError);
  EXPECT_THROW(cache.reorder(std::vector<int64_t>{0, 1}), InternalError);
  EXPECT_THROW(cache.view(3), InternalError);
  model.check();
  model.commit(0, {0, 2});
  model.check();
}

TEST(KvCacheTest, RefusesImpossibleGeometry) {
  EXPECT_THROW(KvCache({{1, 2, 0, 0}}, small_pages()), InternalError);
  EXPECT_THROW(KvCache({{1, 2, 0, -1}, {1, 4, 0, 0}}, small_pages()), InternalError);
  EXPECT_THROW(KvCache({{0, 2, 0, -1}}, small_pages()), InternalError);
  KvCacheOptions options = small_pages();
  options.max_length = 0;
  EXPECT_THROW(KvCache(three_layers(), options), InternalError);
}

TEST(KvCacheTest, PagesAndTablesMayLieOnADevice) {
  KvCacheOptions options = small_pages();
  options.device = at::kMeta;  // has shapes, and no memory that the host could read by mistake
  KvCache cache(three_layers(), options);
  cache.extend(batch_of({}, {-1, 0, 0, 2, 2}));
  cache.commit(0, std::vector<int64_t>{0, 2, 4});
  cache.reorder(std::vector<int64_t>{0, 0});
  cache.extend(batch_of({0, 0, 1}, {}));  // copies the page that both rows write
  const KvView view = cache.view(1);
  EXPECT_TRUE(view.keys.is_meta() && view.values.is_meta());
  EXPECT_TRUE(view.tables->page_table.is_meta());
  EXPECT_EQ(view.tables->nodes, 3);
  EXPECT_TRUE(cache.readers(0, 2, 7).positions.is_meta());
  EXPECT_EQ(cache.key_values(1, 0).first.sizes(), (std::vector<int64_t>{2, 3, 3}));
}

}  // namespace
}  // namespace specdec
