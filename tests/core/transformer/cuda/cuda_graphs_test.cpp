// Forwards that run as graphs have the bits of those that do not: models on the ops of CUDA, whose
// kernels and graphs run on the CPU (core/kernels/cuda/emulation).
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <stdexcept>
#include <string_view>

#include "core/error.h"
#include "core/kernels/forwarding_ops.h"
#include "core/transformer/adapters/lora_adapter.h"
#include "kv/compressed_store.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/emulated_model.h"
#include "tests/support/golden.h"
#include "tests/support/parameter_name.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

using testing::ElementsAre;

TransformerOptions with_graphs(int64_t graphs, std::shared_ptr<Ops> ops = cuda_ops(at::kCPU)) {
  TransformerOptions options;
  options.ops = std::move(ops);
  options.graphs = graphs;
  return options;
}

std::vector<int64_t> numbers_of(const GraphCounts& counts) {
  return {counts.warm_ups, counts.captures, counts.replays};
}

TransformerOptions without_graphs(TransformerOptions options) {
  options.ops = cuda_ops(at::kCPU);
  options.graphs = 0;
  options.prefill_graphs = 0;
  return options;
}

/// Counts copies between tensors of this thread while it lives.
class CountedCopies {
 public:
  CountedCopies() {
    at::addThreadLocalCallback(at::RecordFunctionCallback(&count));
    counted = 0;
  }
  ~CountedCopies() { at::clearThreadLocalCallbacks(); }
  CountedCopies(const CountedCopies&) = delete;
  CountedCopies& operator=(const CountedCopies&) = delete;
  static int64_t number() { return counted; }

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
    counted += std::string_view(call.name()) == "aten::copy_" ? 1 : 0;
    return nullptr;
  }
  static thread_local int64_t counted;
};

thread_local int64_t CountedCopies::counted = 0;

/// A model with graphs beside one without: each forward gives both the same bits.
class GraphPair {
 public:
  explicit GraphPair(const std::shared_ptr<const TransformerWeights>& weights, int64_t graphs = 32)
      : GraphPair(weights, with_graphs(graphs)) {}
  GraphPair(const std::shared_ptr<const TransformerWeights>& weights,
            const TransformerOptions& options, const KvStoreFactory& kv = paged_kv())
      : graphed_(weights, kv, options), plain_(weights, kv, without_graphs(options)) {}

  /// Compares a forward with the plain model's; nothing of the result is kept, so that its memory
  /// is used again.
  void forward(const TokenBatch& batch, const ForwardOptions& options = {}) {
    const ForwardResult wanted = plain_.forward(batch, options);
    const ForwardResult result = graphed_.forward(batch, options);
    expect_same(result.logits, wanted.logits);
    expect_same(result.final_hidden, wanted.final_hidden);
    ASSERT_EQ(result.captured.size(), wanted.captured.size());
    for (size_t i = 0; i < wanted.captured.size(); ++i) {
      expect_same(result.captured[i], wanted.captured[i]);
    }
    ASSERT_EQ(result.best.size(), wanted.best.size());
    for (size_t i = 0; i < wanted.best.size(); ++i) {
      EXPECT_EQ(result.best[i].token, wanted.best[i].token);
      EXPECT_EQ(result.best[i].gap, wanted.best[i].gap);
    }
  }
  void forward(const std::vector<Token>& tokens, const ForwardOptions& options = {}) {
    forward(batch_of(tokens), options);
  }
  /// Keeps the tokens.
  void extend(const std::vector<Token>& tokens) {
    forward(tokens);
    each([](TransformerModel& model) { commit_all(model); });
  }
  void extend_by(int64_t count) {
    std::vector<Token> tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<Token>((graphed_.length() + 3 * i) % 40));
    }
    extend(tokens);
  }
  void truncate(int64_t length, RowId row = 0) {
    each([=](TransformerModel& model) { model.truncate(length, row); });
  }
  Token best_after(Token token) {
    const std::vector<Token> tokens = {token};
    forward(tokens, {.logits_use = LogitsUse::kBest});
    truncate(0);
    const Token best =
        graphed_.forward(batch_of(tokens), {.logits_use = LogitsUse::kBest}).best.front().token;
    truncate(0);
    return best;
  }
  template <class F>
  void each(const F& change) {
    change(graphed_);
    change(plain_);
  }
  TransformerModel& graphed() { return graphed_; }
  std::vector<int64_t> counts() const { return numbers_of(graphed_.graph_counts()); }

 private:
  static void expect_same(const Tensor& result, const Tensor& wanted) {
    ASSERT_EQ(result.defined(), wanted.defined());
    EXPECT_TRUE(!wanted.defined() || at::equal(result, wanted));
  }

  TransformerModel graphed_, plain_;
};

/// A cache whose rows can be truncated to any length, where layers keep states too.
KvStoreFactory every_state_kv() {
  return [](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    return make_cache(layers, {.dtype = options.dtype,
                               .device = options.device,
                               .max_length = options.max_length,
                               .states = {.every = 1}});
  };
}

class CudaGraphGoldenTest : public testing::TestWithParam<std::string> {};

// The second token of a number of nodes is recorded, the third one replayed. Chains and trees of as
// many nodes are one graph: only what the tables hold differs.
TEST_P(CudaGraphGoldenTest, ReplayedTokensHaveTheBitsOfVerifiedOnes) {
  const Golden golden(GetParam());
  const auto tokens = golden.tokens("tokens");
  const Token a = tokens[1], b = tokens[2], c = tokens[3];
  TransformerModel model(load_rows(golden.folder(), at::kFloat), every_state_kv(), with_graphs(8));
  model.prefill_get_last_logits({tokens.data(), 1});  // a first forward of one node
  std::vector<Tensor> alone;
  for (const Token token : {a, b, c}) {
    alone.push_back(model.decode_get_logits({&token, 1})[0].clone());
  }
  EXPECT_THAT(numbers_of(model.graph_counts()), ElementsAre(1, 1, 2));
  struct Case {
    std::vector<Token> tokens;
    std::vector<int64_t> parents;
    std::vector<int64_t> nodes;  ///< of a, b and c
  };
  for (const Case& draft : {Case{{a, b, c}, {}, {0, 1, 2}}, Case{{a, c, b}, {-1, 0, 0}, {0, 2}},
                            Case{{c, a, b}, {-1, -1, 1}, {1, 2}}}) {
    model.truncate(1);
    TokenBatch batch = batch_of(draft.tokens);
    batch.parents = draft.parents;
    const Tensor logits = model.forward(batch).logits;
    for (size_t i = 0; i < draft.nodes.size(); ++i) {
      EXPECT_TRUE(at::equal(logits[draft.nodes[i]], alone[i])) << i;
    }
  }
  EXPECT_THAT(numbers_of(model.graph_counts()), ElementsAre(2, 2, 3));
}

INSTANTIATE_TEST_SUITE_P(All, CudaGraphGoldenTest, testing::ValuesIn(cuda_golden_names()),
                         ParameterName());

class CudaGraphModelTest : public testing::Test {
 protected:
  std::shared_ptr<const TransformerWeights> weights_ = small_gemma();
  GraphPair pair_{weights_};
};

TEST_F(CudaGraphModelTest, InferenceModeMayEnd) {
  {
    const c10::InferenceMode inference;
    pair_.extend_by(1);
  }
  pair_.extend_by(1);
  const c10::InferenceMode inference;
  pair_.extend_by(1);
  EXPECT_THAT(pair_.counts(), ElementsAre(1, 1, 1));
}

TEST_F(CudaGraphModelTest, DecodesTwentyTokens) {
  pair_.extend_by(4);
  for (int i = 0; i < 20; ++i) {
    pair_.extend_by(1);
  }
  EXPECT_THAT(pair_.counts(), ElementsAre(2, 1, 18));
}

// Products of these read weights before the kernel before them has run, and its results after.
TEST(CudaGraphTensorCoresTest, InputsAreThoseOfEachForward) {
  GraphPair pair(small_gemma(1, kEmulated, at::kBFloat16));
  for (const int64_t count : {1, 3, 12}) {
    for (int i = 0; i < 4; ++i) {
      pair.extend_by(count);
    }
  }
  EXPECT_THAT(pair.counts(), ElementsAre(3, 3, 6));
}

// A graph is launched for a power of two of positions: there is a border at 128.
TEST_F(CudaGraphModelTest, ContextsGrowOverABorderAndShrink) {
  pair_.extend_by(125);  // too many for a graph
  EXPECT_THAT(pair_.counts(), ElementsAre(0, 0, 0));
  for (int i = 0; i < 7; ++i) {  // 126, 127, 128, 129, ..., 132 positions
    pair_.extend_by(1);
  }
  EXPECT_THAT(pair_.counts(), ElementsAre(2, 2, 3)) << "up to 128 positions 3, then 4";
  pair_.truncate(127);
  pair_.extend_by(1);
  pair_.extend_by(1);
  EXPECT_THAT(pair_.counts(), ElementsAre(2, 2, 5)) << "both are there still";
  pair_.truncate(3);
  pair_.extend_by(1);
  EXPECT_THAT(pair_.counts(), ElementsAre(2, 2, 6));
}

// Pieces of prompts: by their number of tokens, as long as memory of activations does not grow.
// What more tokens than 64 come to lies elsewhere each time.
TEST_F(CudaGraphModelTest, PrefillsHaveGraphsOfTheirOwn) {
  TransformerOptions options = with_graphs(0);
  options.prefill_graphs = 2;
  GraphPair pair(weights_, options);
  const auto prefill = [&pair](size_t count, const ForwardOptions& wanted) {
    std::vector<Token> tokens;
    for (size_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<Token>((3 * i + pair.counts()[2]) % 40));
    }
    pair.forward(tokens, wanted);
    pair.truncate(0);
  };
  const ForwardOptions last{.layers = {0}, .logits = Logits::kLast};
  for (int i = 0; i < 3; ++i) {
    prefill(70, last);
    prefill(66, last);
  }
  EXPECT_THAT(pair.counts(), ElementsAre(2, 2, 2));
  prefill(70, {.layers = {0}, .logits = Logits::kLast, .hidden = Hidden::kAll});
  EXPECT_THAT(pair.counts(), ElementsAre(2, 2, 2));
  prefill(67, {.layers = {0}, .logits = Logits::kNone});  // 70 goes, which was not used for longest
  prefill(66, last);
  EXPECT_THAT(pair.counts(), ElementsAre(3, 2, 3));
  prefill(80, {.layers = {0},
               .logits = Logits::kNone});  // takes more memory, so activations may move; 67 goes
  prefill(66, last);
  EXPECT_EQ(pair.counts()[1], 2);
}

TEST_F(CudaGraphModelTest, MemoryThatGrowsIsNotThatOfAGraph) {
  pair_.extend_by(5);
  pair_.extend_by(1);
  pair_.extend_by(1);
  EXPECT_THAT(pair_.counts(), ElementsAre(2, 1, 0));
  pair_.forward(std::vector<Token>(30, 3), {.logits = Logits::kNone});
  pair_.truncate(7);
  pair_.extend_by(1);  // attention has a larger workspace now, the graph its own
  EXPECT_THAT(pair_.counts(), ElementsAre(3, 1, 1));
  pair_.forward(std::vector<Token>(40, 3), {.logits = Logits::kNone});
  pair_.truncate(8);  // the tables have moved
  pair_.extend_by(1);
  pair_.extend_by(1);
  pair_.extend_by(1);
  EXPECT_THAT(pair_.counts(), ElementsAre(5, 2, 2));
  pair_.forward({1, 2, 3, 4, 5, 6});
  pair_.truncate(11);  // the results have moved
  pair_.extend_by(1);
  pair_.extend_by(1);
  EXPECT_THAT(pair_.counts(), ElementsAre(7, 3, 2));
}

/// Gives no memory of the CPU's tensors back while it lives: what moves has a new address.
class KeepingAllocator final : public c10::Allocator {
 public:
  KeepingAllocator() : own_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~KeepingAllocator() override { c10::SetCPUAllocator(own_, kPriority); }
  KeepingAllocator(const KeepingAllocator&) = delete;
  KeepingAllocator& operator=(const KeepingAllocator&) = delete;

  c10::DataPtr allocate(size_t bytes) override {
    kept_.push_back(own_->allocate(bytes));
    return {kept_.back().get(), kept_.back().device()};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    own_->copy_data(to, from, bytes);
  }

 private:
  static constexpr uint8_t kPriority = 200;  // above that of memory that a GPU reads
  c10::Allocator* own_;
  std::vector<c10::DataPtr> kept_;
};

TEST_F(CudaGraphModelTest, PrefillsActivationsThatMoveAreNotThoseOfAGraph) {
  const KeepingAllocator moves;
  TransformerOptions options = with_graphs(0);
  options.prefill_graphs = 4;
  GraphPair pair(weights_, options);
  const auto prefill = [&pair](size_t count) {
    pair.forward(std::vector<Token>(count, 3), {.layers = {0}, .logits = Logits::kLast});
    pair.truncate(0);
  };
  prefill(80);
  prefill(81);  // the tables have room for twice as many now
  for (int i = 0; i < 3; ++i) {
    prefill(66);
  }
  EXPECT_THAT(pair.counts(), ElementsAre(3, 1, 1));
  prefill(90);
  prefill(66);
  EXPECT_THAT(pair.counts(), ElementsAre(5, 1, 1)) << "its activations lie elsewhere";
  prefill(66);
  prefill(66);
  EXPECT_THAT(pair.counts(), ElementsAre(5, 2, 2));
}

/// Pages of 64 tokens: the page tables have room for all positions.
TEST_F(CudaGraphModelTest, RotaryTablesThatMoveAreNotThoseOfAGraph) {
  const KeepingAllocator moves;
  GraphPair pair(weights_, with_graphs(8), paged_kv(64));
  pair.extend_by(300);  // the tables have room for as many nodes
  pair.truncate(0);
  for (int i = 0; i < 3; ++i) {
    pair.extend_by(1);
  }
  EXPECT_THAT(pair.counts(), ElementsAre(1, 1, 1));
  pair.extend_by(297);
  pair.extend_by(300);  // 600 positions are more than the 512 of the first rotary tables
  pair.truncate(3);
  pair.extend_by(1);
  EXPECT_THAT(pair.counts(), ElementsAre(2, 1, 1));
  pair.extend_by(1);
  pair.extend_by(1);
  EXPECT_THAT(pair.counts(), ElementsAre(2, 2, 2));
}

// Rows of one batch differ in order, number and length: what a graph knows is how many nodes there
// are.
TEST_F(CudaGraphModelTest, RowsAndPositionsAreThoseOfEachForward) {
  pair_.extend_by(9);
  RowId other = 0;
  pair_.each([&](TransformerModel& model) { other = model.fork(0, 4); });
  TokenBatch batch = batch_of(std::vector<Token>{7, 8, 9, 10});
  const std::vector<std::vector<RowId>> all_rows = {{0, 0, 0, 0},
                                                    {0, other, other, other},
                                                    {other, other, 0, 0},
                                                    {other, other, other, 0},
                                                    {other, other, other, other}};
  for (const auto& rows : all_rows) {
    batch.rows = rows;
    pair_.forward(batch);
    pair_.truncate(4, other);
    pair_.truncate(8 - static_cast<int64_t>(rows.front()), 0);
    pair_.extend_by(1);  // another width between
  }
  EXPECT_GE(pair_.counts()[2], 6);
  pair_.each([&](TransformerModel& model) { model.close(other); });
  for (int i = 0; i < 2; ++i) {
    pair_.forward({1, 2, 3, 4});
    pair_.truncate(pair_.graphed().length());
  }
}

TEST_F(CudaGraphModelTest, WhatIsAskedForIsPartOfAGraph) {
  pair_.extend_by(3);
  const std::vector<ForwardOptions> all = {{},
                                           {.hidden = Hidden::kAll},
                                           {.hidden = Hidden::kScored},
                                           {.logits = Logits::kLast},
                                           {.logits = Logits::kLast, .hidden = Hidden::kScored},
                                           {.logits = Logits::kLast, .hidden = Hidden::kAll},
                                           {.logits = Logits::kNone},
                                           {.logits = Logits::kNone, .hidden = Hidden::kAll},
                                           {.logits_use = LogitsUse::kBest},
                                           {.layers = {0}},
                                           {.capture_layers = {0, 1}},
                                           {.layers = {1}, .logits = Logits::kLast}};
  for (Token round = 0; round < 3; ++round) {
    for (const ForwardOptions& options : all) {
      pair_.forward({round, 12}, options);
      pair_.truncate(3);
    }
  }
  // kScored launches what the first of them does.
  EXPECT_THAT(pair_.counts(), ElementsAre(11, 10, 16));
}

// A step of greedy decoding is one launch: forbidden and best tokens are found in the graph, and
// token ids go up with the tables.
TEST_F(CudaGraphModelTest, NothingIsLaunchedOrCopiedBesideAGraph) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  TransformerOptions options = with_graphs(8, ops);
  options.usable_tokens = 30;
  options.suppressed = {1, 4, 7};
  GraphPair pair(weights_, options);
  for (Token token = 0; token < 3; ++token) {
    pair.forward({token}, {.logits_use = LogitsUse::kBest});
    pair.truncate(0);
    EXPECT_EQ(ops->take_calls().empty(), token > 0);
  }
  const std::vector<Token> next = {3};
  const CountedCopies copies;
  const ForwardResult result =
      pair.graphed().forward(batch_of(next), {.logits_use = LogitsUse::kBest});
  EXPECT_TRUE(ops->take_calls().empty());
  EXPECT_EQ(copies.number(), 0);
  ASSERT_EQ(result.best.size(), 1U);
  EXPECT_FALSE(result.logits.defined());
  at::zeros({1}).copy_(at::ones({1}));
  EXPECT_EQ(copies.number(), 1) << "a copy is counted";
}

TEST_F(CudaGraphModelTest, ForbiddenTokensAreNotTheBest) {
  const Token best = GraphPair(weights_).best_after(5);
  TransformerOptions options = with_graphs(8);
  options.suppressed = {best};
  GraphPair pair(weights_, options);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(pair.best_after(5), best);
  }
  EXPECT_THAT(pair.counts(), ElementsAre(1, 1, 2));
}

// A target and `self`, which reads upper halves, take turns on the same pages.
TEST_F(CudaGraphModelTest, WhatIsReadOfThePagesIsPartOfAGraph) {
  GraphPair pair(weights_, with_graphs(8), paged_kv(4, KvFormat::kHierarchical));
  pair.extend_by(9);
  for (Token round = 0; round < 3; ++round) {
    for (const KvRead read : {KvRead::kAll, KvRead::kUpperHalf}) {
      pair.forward({round, 12}, {.kv_read = read});
      pair.truncate(9);
    }
  }
  EXPECT_THAT(pair.counts(), ElementsAre(3, 2, 2));
}

/// Means are made within graphs, which a larger memory of means makes anew.
TEST_F(CudaGraphModelTest, MeansAreThoseOfEachForward) {
  const KvStoreFactory kv = [](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    return std::make_unique<CompressedStore>(paged_kv(4)(layers, options), layers,
                                             Pooling{.chunk = 2, .recent = 3, .sink = 1});
  };
  GraphPair pair(weights_, with_graphs(8), kv);
  for (int i = 0; i < 12; ++i) {
    pair.extend_by(1);
  }
  EXPECT_THAT(pair.counts(), ElementsAre(2, 2, 8)) << "the first means made memory for them";
  RowId other = 0;
  pair.each([&](TransformerModel& model) { other = model.fork(0, 10); });
  TokenBatch batch = batch_of(std::vector<Token>{7, 8, 9, 10, 11, 12});
  batch.parents = {-1, -1, 1, 2, 3, 4};  // deeper than 3
  for (const RowId row : {RowId{0}, other, RowId{0}, other}) {
    batch.rows = std::vector<RowId>(6, row);
    pair.forward(batch);
    pair.each([&](TransformerModel& model) {
      model.commit(std::vector<int64_t>{1, 2}, row);
      model.truncate(model.length(row) - 1, row);
    });
    pair.forward({1});
    pair.truncate(pair.graphed().length());
  }
  EXPECT_GE(pair.counts()[2], 12);
  pair.extend_by(40);  // more means than there was room for
  pair.extend_by(1);
  pair.extend_by(1);
  pair.truncate(20);
  pair.extend_by(1);
}

/// Exact pages come and go between graphs, which read as many chunks of them in each.
TEST_F(CudaGraphModelTest, RecentTokensAreThoseOfEachForward) {
  const KvStoreFactory kv = [](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    return make_cache(layers, {.dtype = options.dtype,
                               .format = KvFormat::kQ4,
                               .device = options.device,
                               .page_size = 4,
                               .max_length = options.max_length,
                               .window_slack = 4,
                               .exact_recent = 5});
  };
  GraphPair pair(weights_, with_graphs(8), kv);
  pair.extend_by(125);
  for (int i = 0; i < 9; ++i) {  // 126, ..., 134 positions
    pair.extend_by(1);
  }
  EXPECT_THAT(pair.counts(), ElementsAre(2, 2, 5)) << "up to 128 positions 3, then 6";
  TokenBatch tree = batch_of(std::vector<Token>{7, 8, 9, 10});
  tree.parents = {-1, 0, 0, 2};
  for (int i = 0; i < 3; ++i) {
    pair.forward(tree);
    pair.each([](TransformerModel& model) { model.commit(std::vector<int64_t>{0, 2}); });
  }
  EXPECT_THAT(pair.counts(), ElementsAre(3, 3, 6));
}

/// Which groups of keys are rounded is said by each forward's tables.
TEST_F(CudaGraphModelTest, GroupsOfKeysAreRoundedInEachForward) {
  const KvStoreFactory kv = [](const std::vector<LayerKv>& layers, const KvStoreOptions& options) {
    return make_cache(layers, {.dtype = options.dtype,
                               .format = KvFormat::kKivi2,
                               .device = options.device,
                               .page_size = kKeyGroup,
                               .max_length = options.max_length,
                               .window_slack = 4,
                               .exact_recent = 32});
  };
  GraphPair pair(weights_, with_graphs(8), kv);
  pair.extend_by(62);
  for (int i = 0; i < 70; ++i) {  // up to 132 positions; groups end at 64, 96 and 128
    pair.extend_by(1);
  }
  EXPECT_THAT(pair.counts(), ElementsAre(3, 2, 66));
  TokenBatch tree = batch_of(std::vector<Token>{7, 8, 9, 10});
  tree.parents = {-1, 0, 0, 2};
  for (int i = 0; i < 20; ++i) {  // and at 160, by a commit or a forward
    pair.forward(tree);
    pair.each([](TransformerModel& model) { model.commit(std::vector<int64_t>{0, 2}); });
  }
  pair.truncate(169);
  pair.extend_by(4);
  EXPECT_GE(pair.counts()[2], 66 + 18);
}

TEST_F(CudaGraphModelTest, ResultsThatAreHeldStayAsTheyAre) {
  pair_.extend_by(3);
  std::vector<Tensor> held, copies;
  for (Token token = 0; token < 9; ++token) {
    held.push_back(pair_.graphed().forward(batch_of(std::vector<Token>{token, 5})).logits);
    copies.push_back(held.back().clone());
    pair_.graphed().truncate(3);
    if (held.size() == 4) {  // their memory is used again
      held.clear();
      copies.clear();
    }
    for (size_t i = 0; i < held.size(); ++i) {
      EXPECT_TRUE(at::equal(held[i], copies[i])) << i;
    }
  }
}

TEST_F(CudaGraphModelTest, TheOneThatWasNotUsedForLongestGoes) {
  GraphPair two(weights_, 2);
  GraphPair three(weights_, 3);
  for (GraphPair* pair : {&two, &three}) {
    for (int round = 0; round < 3; ++round) {
      for (const int64_t width : {3, 2, 1}) {
        pair->forward(std::vector<Token>(static_cast<size_t>(width), 9));
        pair->truncate(0);
      }
    }
  }
  EXPECT_THAT(two.counts(), ElementsAre(9, 0, 0));
  EXPECT_THAT(three.counts(), ElementsAre(3, 3, 3));
  two.forward({1});
  EXPECT_THAT(two.counts(), ElementsAre(9, 1, 0));
}

// A drafter and its target share the device's ops, and so the workspace, and take turns.
TEST_F(CudaGraphModelTest, ModelsTakeTurns) {
  const auto ops = cuda_ops(at::kCPU);
  GraphPair target(weights_, with_graphs(8, ops));
  GraphPair drafter(small_gemma(2), with_graphs(8, ops));
  target.extend_by(5);
  drafter.extend_by(5);
  for (Token round = 0; round < 4; ++round) {
    drafter.extend({round});
    drafter.extend({21});
    target.forward({round, 21, 22});
    target.each([](TransformerModel& model) { model.commit(std::vector<int64_t>{0, 1}); });
  }
  EXPECT_THAT(target.counts(), ElementsAre(2, 1, 2));
  EXPECT_THAT(drafter.counts(), ElementsAre(2, 1, 6));
}

TEST_F(CudaGraphModelTest, WhatAGraphCannotHoldRunsWithoutOne) {
  class Nothing final : public LayerHook {
    std::string fingerprint() const override { return ""; }
    void run(LayerPass& pass) override { pass.evaluate(); }
  };
  TransformerOptions hooked = with_graphs(8);
  hooked.hooks = {std::make_shared<Nothing>()};
  const auto wrapped = std::make_shared<ForwardingOps>(cuda_ops(at::kCPU));
  GraphPair off(weights_, 0), with_hook(weights_, hooked),
      wrapper(weights_, with_graphs(8, wrapped));
  TokenBatch biased = batch_of(std::vector<Token>{4, 5});
  biased.inputs.attention_bias = at::ones({2, 2});
  for (GraphPair* pair : {&off, &with_hook, &wrapper}) {
    pair->forward({1, 2});
    EXPECT_THAT(pair->counts(), ElementsAre(0, 0, 0));
  }
  pair_.forward(biased);
  pair_.truncate(0);
  pair_.forward(std::vector<Token>(65, 1));
  EXPECT_THAT(pair_.counts(), ElementsAre(0, 0, 0));
}

TEST_F(CudaGraphModelTest, EmbeddingsAreAGraphOfTheirOwn) {
  for (int forward = 0; forward < 3; ++forward) {
    TokenBatch embedded;
    embedded.inputs.embeddings = at::randn({2, 16});
    pair_.forward(embedded);
    pair_.truncate(0);
    pair_.forward({4, 5});
    pair_.truncate(0);
  }
  EXPECT_THAT(pair_.counts(), ElementsAre(2, 2, 2));
}

TEST(CudaGraphAdapterTest, AdaptersRunWithoutGraphs) {
  const Golden golden("gemma3-lora-a");
  const auto base = load_rows(test_data("gemma3-a"), at::kFloat);
  const auto adapter = load_lora(golden.folder(), base);
  GraphPair pair(base);
  const auto decode = [&pair] {
    pair.forward({3});
    pair.truncate(0);
  };
  decode();
  decode();
  EXPECT_THAT(pair.counts(), ElementsAre(1, 1, 0));
  pair.each([&](TransformerModel& model) { model.push_adapter({adapter}); });
  decode();
  EXPECT_THAT(pair.counts(), ElementsAre(1, 1, 0));
  pair.each([](TransformerModel& model) { model.pop_adapter(); });
  decode();
  EXPECT_THAT(pair.counts(), ElementsAre(1, 1, 1));
}

/// Fails in the next activation when it is told to.
class FailingOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  void gated_activation(const Tensor& gate_up, Activation activation, Tensor& out) override {
    if (std::exchange(fails_, false)) {
      throw std::runtime_error("planted");
    }
    ForwardingOps::gated_activation(gate_up, activation, out);
  }
  bool records() const override { return true; }
  std::unique_ptr<OpsGraph> record(const std::function<void()>& calls) override {
    return ops().record(calls);
  }
  void fail() { fails_ = true; }

 private:
  bool fails_ = false;
};

TEST_F(CudaGraphModelTest, AnErrorEndsACapture) {
  const auto ops = std::make_shared<FailingOps>(cuda_ops(at::kCPU));
  GraphPair pair(weights_, with_graphs(8, ops));
  pair.extend_by(4);
  pair.extend_by(1);
  ops->fail();  // while the second forward of one token is recorded
  EXPECT_THROW(pair.graphed().forward(batch_of(std::vector<Token>{7})), std::runtime_error);
  EXPECT_EQ(pair.graphed().pending(), 0);
  EXPECT_THAT(pair.counts(), ElementsAre(2, 0, 0));
  pair.extend_by(2);  // runs as it is
  pair.extend_by(1);
  pair.extend_by(1);
  EXPECT_THAT(pair.counts(), ElementsAre(3, 1, 1));
}

TEST(CudaGraphOpsTest, WhatCannotBeRecordedIsRefused) {
  const auto ops = cuda_ops(at::kCPU);
  const auto weights = small_gemma();
  Tensor out = at::zeros({1, 16});
  const Tensor one = at::ones({1, 16});
  const std::vector<std::function<void()>> calls = {
      [&] { ops->embed_rows(weights->embedding, at::tensor({3}, at::kLong), 1.0, out); },
      [&] { ops->look_up({}, at::tensor({3}, at::kInt), 1.0, out); }, [&] { ops->record([] {}); }};
  for (const auto& call : calls) {
    EXPECT_ANY_THROW(ops->record([&] {
      ops->add(out, one);
      call();
    }));
    EXPECT_EQ(out.sum().item<float>(), 0.0F) << "nothing ran";
  }
  const auto graph = ops->record([&] { ops->add(out, one); });
  ops->add(out, one);
  graph->run();
  EXPECT_TRUE(at::equal(out, 2 * one));
}

TEST(CudaGraphOpsTest, AWorkspaceDoesNotGrowWhileItIsRecorded) {
  const auto ops = cuda_ops(at::kCPU);
  const auto weights = load_rows(test_data("gemma3-a"), at::kBFloat16);  // on tensor cores
  const Linear& matrix = weights->layers[0].qkv;
  const Tensor input = at::ones({2, matrix.in()});
  Tensor out = at::zeros({2, matrix.out()});
  const auto product = [&] { ops->linear(matrix, input, out); };
  EXPECT_THROW(ops->record(product), InternalError);
  product();
  const Tensor wanted = out.clone();
  const auto graph = ops->record(product);
  out.zero_();
  Tensor wide = at::empty({40, matrix.out()});
  ops->linear(matrix, at::ones({40, matrix.in()}), wide);  // takes a new workspace
  graph->run();
  EXPECT_TRUE(at::equal(out, wanted));
}

TEST(ForwardGraphsTest, ContextsAreRoundedUpToPowersOfTwo) {
  for (const auto& [longest, bucket] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 128}, {128, 128}, {129, 256}, {256, 256}, {1000, 1024}, {131072, 131072}}) {
    EXPECT_EQ(launched_context(longest), bucket) << longest;
  }
}

TEST(ForwardGraphsTest, TheHostRecordsNothing) {
  EXPECT_FALSE(cpu_ops()->records());
  EXPECT_THROW(cpu_ops()->record([] {}), InternalError);
  EXPECT_FALSE(ForwardGraphs(*cpu_ops(), 8).enabled());
}

}  // namespace
}  // namespace specdec
