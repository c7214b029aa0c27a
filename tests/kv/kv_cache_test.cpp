#include "kv/kv_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "core/kernels/hadamard.h"
#include "tests/kv/cache_model.h"

namespace specdec {
namespace {

class KvCacheFormatTest : public testing::TestWithParam<KvFormat> {};

TEST_P(KvCacheFormatTest, RandomHistoriesHoldWhatTheyShould) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    KvCacheOptions options = small_pages(GetParam());
    options.as_device = seed % 2 == 1;
    CacheModel model(options);
    for (int step = 0; step < 80; ++step) {
      random_step(model, random);
      if (testing::Test::HasFailure()) {
        return;
      }
      model.check();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, KvCacheFormatTest, testing::ValuesIn(kExactFormats),
                         [](const auto& info) { return kv_format_name(info.param); });

TEST(KvCacheTest, PendingNodesSeeTheirAncestorsOverForwards) {
  CacheModel model;
  model.extend(chain(33));
  model.extend(batch_of({}, {32, 33, 10, 31, -1}));
  const BatchTables& tables = tables_of(model.cache());
  EXPECT_EQ(visible(tables, 1).size(), 35U);
  EXPECT_EQ(visible(tables, 2).size(), 12U);
  EXPECT_EQ(visible(tables, 4), std::vector<int32_t>{37});
  EXPECT_LT(tables.path_starts.const_data_ptr<int32_t>()[1], 0) << "the chain goes on";
}

TEST(KvCacheTest, BFloat16TakesHalfTheBytesAndIsReadAsTheActivations) {
  KvCache native(three_layers(), small_pages());
  KvCache half(three_layers(), small_pages(KvFormat::kBFloat16));
  for (KvCache* cache : {&native, &half}) {
    cache->extend(chain(5).nodes());
    cache->commit(0, first_nodes(5));
  }
  EXPECT_EQ(2 * half.statistics().allocated_bytes(), native.statistics().allocated_bytes());
  EXPECT_EQ(half.view(0).keys.scalar_type(), at::kBFloat16);
  EXPECT_EQ(half.key_values(0, 0).first.scalar_type(), at::kFloat);
}

TEST(KvCacheTest, FormatsTakeTheirCodesAndTheScales) {
  const std::vector<LayerKv> layer = {{2, 80, 0, -1}};  // three groups of a head, the last of 16
  const std::pair<KvFormat, int64_t> head_bytes[] = {
      {KvFormat::kNative, 320}, {KvFormat::kBFloat16, 160},   {KvFormat::kFloat16, 160},
      {KvFormat::kFp8E4m3, 80}, {KvFormat::kQ8, 86},          {KvFormat::kQ4, 46},
      {KvFormat::kQ3, 36},      {KvFormat::kHierarchical, 86}};
  for (const auto& [format, bytes] : head_bytes) {
    KvCache cache(layer, small_pages(format));
    EXPECT_EQ(cache.statistics().layers[0].page_bytes, 2 * 2 * 4 * bytes) << kv_format_name(format);
    cache.extend(chain(1).nodes());
    EXPECT_EQ(cache.view(0).head_dim(), 80) << kv_format_name(format);
    EXPECT_EQ(cache.view(0).values.element_size() * cache.view(0).values.size(3), bytes);
  }
}

TEST(KvCacheTest, MetalHasFewerFormats) {
  for (const KvFormat format : {KvFormat::kQ3, KvFormat::kKivi2, KvFormat::kKivi4}) {
    KvCacheOptions options = small_pages(format);
    options.device = at::kMPS;
    try {
      const KvCache cache({{2, 64, 0, -1}}, options);
      FAIL() << "accepted";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(kv_format_name(format)), std::string::npos) << message;
      EXPECT_NE(message.find("is for the CPU and CUDA"), std::string::npos) << message;
    }
  }
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
  EXPECT_EQ(cache.open(), 1);
  cache.extend(batch_of({0, 0, 1}, {}).nodes());
  EXPECT_EQ(entries(tables_of(cache).positions, 3), (std::vector<int32_t>{0, 1, 0}));
  cache.commit(1, first_nodes(1));
  cache.extend(batch_of({0, 1, 1}, {}).nodes());
  EXPECT_EQ(entries(tables_of(cache).positions, 3), (std::vector<int32_t>{2, 1, 2}));
  EXPECT_EQ(entries(tables_of(cache).slots, 3), (std::vector<int32_t>{2, 1, 2}));
  EXPECT_EQ(visible(tables_of(cache), 0), (std::vector<int32_t>{0, 1, 2}));
}

TEST(KvCacheTest, SharedPagesAreCopiedOnWriteOnly) {
  CacheModel model;
  model.extend(chain(6));
  model.commit(0, first_nodes(6));
  model.fork(0, 6);
  model.fork(0, 5);
  const int64_t bytes = model.cache().statistics().allocated_bytes();
  model.check();
  EXPECT_EQ(model.cache().statistics().allocated_bytes(), bytes) << "sharing costs no page";
  model.extend(batch_of({0, 1, 1, 2}, {-1, -1, 0, -1}));
  const KvView view = model.cache().view(0);
  const int32_t* pages = view.page_table();
  const int64_t stride = view.page_stride();
  EXPECT_EQ(pages[0], pages[stride]) << "the full page stays shared";
  EXPECT_NE(pages[1], pages[stride + 1]);
  model.commit(1, {0, 1});
  model.commit(0, {0});
  model.commit(2, {});
  model.check();
}

TEST(KvCacheTest, DecodingDoesNotAllocateEachStep) {
  KvCache cache(three_layers(), small_pages());
  cache.extend(chain(8).nodes());
  cache.commit(0, first_nodes(8));
  const void* tables = tables_of(cache).slots.const_data_ptr();
  const void* keys = cache.view(0).keys.const_data_ptr();
  for (int step = 0; step < 24; ++step) {
    cache.extend(chain(1).nodes());
    EXPECT_EQ(tables_of(cache).slots.const_data_ptr(), tables);
    EXPECT_EQ(cache.view(0).keys.const_data_ptr(), keys) << "pages never move";
    cache.commit(0, first_nodes(1));
  }
}

TEST(KvCacheTest, ALayerMayReadAnothersPool) {
  KvCache cache(three_layers(), small_pages());
  cache.extend(chain(1).nodes());
  EXPECT_EQ(cache.view(2).keys.const_data_ptr(), cache.view(0).keys.const_data_ptr());
  EXPECT_EQ(cache.view(1).window, 4);
  const int64_t pages = cache.view(0).keys.size(0);
  EXPECT_EQ(cache.statistics().allocated_bytes(), pages * 4 * (2 + 2 * 34) * 2 * 4);
}

TEST(KvCacheTest, TruncateForgetsPendingNodesToo) {
  CacheModel model;
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
  CacheModel model;
  model.extend(chain(3));
  model.commit(0, first_nodes(3));
  model.extend(chain(2));
  model.open();
  KvCache& cache = model.cache();
  const NodeBatch bad[] = {
      batch_of({}, {2}),                 // follows itself
      batch_of({}, {-2}),                //
      batch_of({}, {1, 4}),              // follows a later node
      batch_of({0, 1}, {-1, 0}),         // row 1 has no node 0
      batch_of({1, 0, 1}, {-1, -1, 0}),  // row 1 is split
      batch_of({0, 2}, {-1, -1}),        // no row 2
      batch_of({-1}, {-1}),              //
      batch_of({0, 0}, {-1}, 2),         // a parent is missing
      batch_of({0}, {-1, -1}, 2),        // a row is missing
  };
  for (const NodeBatch& batch : bad) {
    EXPECT_THROW(cache.extend(batch.nodes()), InternalError);
    model.check();
  }
  EXPECT_THROW(cache.extend({.count = -1}), InternalError);
  EXPECT_THROW(cache.extend(chain(kMaxLength - 4).nodes()), Error);
  EXPECT_THROW(cache.extend(batch_of({0, 1, 1}, {-1, -1, 7}).nodes()), InternalError);
  model.check();
  model.extend(chain(kMaxLength - 5));
}

TEST(KvCacheTest, UndoTakesBackTheNewestExtendOnly) {
  KvCache cache(three_layers(), small_pages());
  cache.extend(chain(3).nodes());
  cache.commit(0, first_nodes(3));
  cache.extend(chain(2).nodes());
  cache.open();
  cache.extend(batch_of({0, 0, 1}, {0, 2, -1}).nodes());
  cache.undo_extend();
  EXPECT_EQ(cache.pending(1), 0);
  EXPECT_EQ(cache.length(0), 3);
  EXPECT_EQ(cache.pending(0), 2);
  cache.extend(batch_of({0, 1}, {1, -1}).nodes());
  EXPECT_EQ(visible(tables_of(cache), 0), (std::vector<int32_t>{3, 4, 5}));
  EXPECT_EQ(entries(tables_of(cache).positions, 2), (std::vector<int32_t>{5, 0}));
  cache.commit(0, first_nodes(3));
  EXPECT_EQ(cache.length(0), 6);
}

TEST(KvCacheTest, TooLongASequenceSaysHowLong) {
  KvCache cache(three_layers(), small_pages());
  try {
    cache.extend(chain(kMaxLength + 1).nodes());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("41 tokens exceeds the model's max_length 40"),
              std::string::npos)
        << error.what();
  }
}

TEST(KvCacheTest, RefusesWhatIsNotAPath) {
  CacheModel model;
  model.extend(batch_of({}, {-1, 0, 0, -1}));
  KvCache& cache = model.cache();
  for (const std::vector<int64_t>& path :
       {std::vector<int64_t>{1}, {0, 3}, {0, 1, 2}, {0, 0}, {4}, {-1}, {3, 0}}) {
    EXPECT_THROW(cache.commit(0, path), InternalError);
  }
  EXPECT_THROW(cache.commit(1, std::vector<int64_t>{0}), InternalError);
  EXPECT_THROW(cache.truncate(0, 1), InternalError);
  EXPECT_THROW(cache.truncate(0, -1), InternalError);
  EXPECT_THROW(cache.fork(0, 1), InternalError);
  EXPECT_THROW(cache.fork(0, -1), InternalError);
  EXPECT_THROW(cache.fork(1, 0), InternalError);
  EXPECT_THROW(cache.close(0), InternalError);
  EXPECT_THROW(cache.view(3), InternalError);
  model.check();
  model.commit(0, {0, 2});
  model.check();
}

TEST(KvCacheTest, NamesOfClosedRowsAreNotUsedAgain) {
  CacheModel model;
  model.extend(chain(7));
  model.commit(0, first_nodes(7));
  const RowId first = model.fork(0, 6);
  model.close(first);
  const RowId second = model.fork(0, 5);
  EXPECT_NE(first, second);
  KvCache& cache = model.cache();
  EXPECT_THROW((void)cache.length(first), InternalError);
  EXPECT_THROW(cache.truncate(first, 0), InternalError);
  EXPECT_THROW(cache.commit(first, {}), InternalError);
  EXPECT_THROW(cache.fork(first, 0), InternalError);
  EXPECT_THROW(cache.close(first), InternalError);
  EXPECT_THROW(cache.extend(batch_of({first}, {-1}).nodes()), InternalError);
  EXPECT_EQ(cache.rows(), (std::vector<RowId>{0, second}));
  model.check();
  for (int i = 0; i < 20; ++i) {
    model.close(model.open());
  }
  model.extend(batch_of({second, 0}, {}));
  EXPECT_LE(tables_of(cache).lengths.size(0), 4) << "tables are as large as the open rows need";
  model.check();
}

TEST(KvCacheTest, AForkBeginsWithKeptTokensOnly) {
  CacheModel model;
  model.extend(chain(6));
  model.commit(0, first_nodes(6));
  model.extend(batch_of({}, {-1, 0, 0}));
  const RowId fork = model.fork(0, 5);
  EXPECT_EQ(model.cache().pending(0), 3) << "they stay the row's own";
  EXPECT_EQ(model.cache().pending(fork), 0);
  model.extend(batch_of({fork, fork}, {}));
  model.commit(fork, {0, 1});
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
  cache.extend(batch_of({}, {-1, 0, 0, 2, 2}).nodes());
  cache.commit(0, std::vector<int64_t>{0, 2, 4});
  cache.fork(0, 3);
  cache.extend(batch_of({0, 0, 1}, {}).nodes());  // copies the page that both rows write
  const KvView view = cache.view(1);
  EXPECT_TRUE(view.keys.is_meta() && view.values.is_meta());
  EXPECT_TRUE(view.tables->page_tables.is_meta());
  EXPECT_EQ(view.tables->nodes, 3);
  EXPECT_TRUE(cache.readers(0, 2, 7).positions.is_meta());
  EXPECT_EQ(cache.key_values(1, 0).first.sizes(), (std::vector<int64_t>{2, 3, 34}));
}

TEST(KvCacheTest, ARotationIsForFormatsWithScales) {
  KvCacheOptions options = small_pages(KvFormat::kQ8);
  options.rotation = KvRotation::kHadamard;
  EXPECT_EQ(KvCache(three_layers(), options).view(0).rotation, KvRotation::kHadamard);
  options = small_pages(KvFormat::kFloat16);
  options.rotation = KvRotation::kHadamard;
  EXPECT_THROW(KvCache(three_layers(), options), InternalError);
}

TEST(KvCacheTest, AFormatRefusesHeadsThatItCannotHold) {
  try {
    const KvCache cache({{1, 36, 0, -1}}, small_pages(KvFormat::kQ3));
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("q3 takes heads of a multiple of 8 dimensions"), std::string::npos)
        << message;
  }
}

/// Numbers [kv_heads, tokens, head_dim] as key_values gives them of a cache that rounds them.
Tensor as_stored(const KvCacheOptions& options, const Tensor& numbers) {
  Tensor stored = numbers.contiguous().clone();
  const int64_t head_dim = stored.size(2);
  std::vector<double> bytes(static_cast<size_t>(head_dim));
  for (int64_t i = 0; i < stored.numel(); i += head_dim) {
    float* head = stored.mutable_data_ptr<float>() + i;
    const bool rotated = options.rotation == KvRotation::kHadamard;
    if (rotated) {
      hadamard(head, head_dim);
    }
    encode_kv(options.format, head, head_dim, {bytes.data(), 1});
    decode_kv(options.format, {bytes.data(), 1}, head_dim, head);
    if (rotated) {
      hadamard(head, head_dim);
    }
  }
  return stored;
}

/// Three tokens, then eight more than a page has left; layers 0 and 1 have keys of their own.
void check_appended(const KvCacheOptions& options) {
  at::manual_seed(3);
  const std::vector<LayerKv> layers = {{1, 40, 0, -1}, {2, 64, 4, -1}, {1, 40, 0, 0}};
  KvCache cache(layers, options);
  std::vector<std::pair<Tensor, Tensor>> all;
  for (size_t layer = 0; layer < 2; ++layer) {
    const std::vector<int64_t> sizes = {layers[layer].kv_heads, 11, layers[layer].head_dim};
    all.emplace_back(at::randn(sizes), at::randn(sizes));
  }
  for (const auto& [begin, count] : {std::pair{0, 3}, std::pair{3, 8}}) {
    cache.append(0, count, [&, first = begin, tokens = count](int64_t layer) {
      const auto& [keys, values] = all.at(static_cast<size_t>(layer));
      return std::pair(keys.narrow(1, first, tokens), values.narrow(1, first, tokens));
    });
  }
  ASSERT_EQ(cache.length(0), 11);
  for (int64_t layer = 0; layer < 3; ++layer) {
    const auto& [keys, values] = all.at(layer == 1 ? 1 : 0);
    const auto held = cache.key_values(layer, 0);
    EXPECT_TRUE(at::equal(held.first, as_stored(options, keys))) << layer;
    EXPECT_TRUE(at::equal(held.second, as_stored(options, values))) << layer;
    const auto some = cache.key_values(layer, 0, {2, 9});
    EXPECT_TRUE(at::equal(some.first, held.first.narrow(1, 2, 7)));
    EXPECT_TRUE(at::equal(some.second, held.second.narrow(1, 2, 7)));
  }
}

TEST(KvCacheTest, AppendedNumbersAreRoundedAsWrittenOnes) {
  for (const KvFormat format : kKvFormats) {
    SCOPED_TRACE(kv_format_name(format));
    KvCacheOptions options = small_pages(format);
    check_appended(options);
    if (has_scales(format)) {
      options.rotation = KvRotation::kHadamard;
      check_appended(options);
    }
  }
}

TEST(KvCacheTest, AnAppendThatFailsChangesNothing) {
  KvCache cache(three_layers(), small_pages());
  const KvStore::NumbersOfLayer none = [](int64_t) -> std::pair<Tensor, Tensor> {
    throw Error("no numbers");
  };
  EXPECT_THROW(cache.append(0, 3, none), Error);
  EXPECT_EQ(cache.length(0), 0);
  EXPECT_EQ(cache.pending(0), 0);
  EXPECT_THROW(cache.append(0, kMaxLength + 1, none), Error) << "too long";
  cache.extend(chain(1).nodes());
  EXPECT_THROW(cache.append(0, 1, none), InternalError) << "pending nodes";
  EXPECT_THROW((void)cache.key_values(0, 0, {0, 1}), InternalError) << "not kept";
}

}  // namespace
}  // namespace specdec
