// Forwards of a head on a target, run on the CPU (core/kernels/cuda/emulation): each is one graph,
// from the features that it is fed to its logits, with the bits of one without graphs.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/kernels/forwarding_ops.h"
#include "core/transformer/heads/feature_model.h"
#include "kv/paged_kv.h"
#include "tests/core/transformer/cuda/chain_graphs.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/module_bench.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

/// A head and the width of what it is fed of the target.
struct FedHead {
  std::string name;
  int64_t width;
  std::shared_ptr<const EagleHead> eagle;  ///< nullptr: the second of two modules
};

std::shared_ptr<const EagleHead> random_eagle3(const TransformerWeights& target,
                                               const std::function<void(EagleConfig&)>& change) {
  auto config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, target);
  config.capture_layers = {0, 1};
  config.draft_vocab_size = 24;
  change(config);
  const auto head = random_eagle_head(config, {.seed = 6});
  head->target_ids = (at::arange(24) * 7 + 3).remainder(40);
  return head;
}

std::vector<FedHead> fed_heads(const TransformerWeights& target) {
  const auto config = make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, target);
  return {{"eagle", 16, random_eagle_head(config, {.seed = 5})},
          {"eagle3", 32, random_eagle3(target, [](EagleConfig&) {})},
          {"eagle3 of normed streams", 32,
           random_eagle3(target,
                         [](EagleConfig& own) {
                           own.fc_norm = true;
                           own.norm_output = true;
                         })},
          {"eagle3 of streams normed as one", 32,
           random_eagle3(target,
                         [](EagleConfig& own) {
                           own.norm_before_fc = true;
                           own.norm_before_residual = true;
                           own.soft_cap = 3.0;
                         })},
          {"eagle3 of three layers", 32,
           random_eagle3(target, [](EagleConfig& own) { own.layers = 3; })},
          {"mtp", 16, nullptr}};
}

std::unique_ptr<FeatureModel> model_of(const FedHead& head,
                                       const std::shared_ptr<const TransformerWeights>& target,
                                       const TransformerOptions& options,
                                       const KvStoreFactory& store = paged_kv()) {
  return head.eagle != nullptr
             ? make_eagle_model(head.eagle, target, store, options)
             : make_mtp_model(random_mtp_head(*target, 2, {.seed = 7}), 1, target, store, options);
}

/// What forwards are asked for in turn.
struct Asked {
  std::vector<int64_t> parents;  ///< of pending nodes
  bool own;                      ///< fed with the head's own features
  Logits logits;
  Hidden hidden;
  bool columns = true;  ///< logits of the draft vocabulary
};
const std::vector<Asked> kAsked = {{{-1, 0}, false, Logits::kLast, Hidden::kScored},
                                   {{-1, 0, 0}, true, Logits::kAll, Hidden::kAll},
                                   {{-1, 0, 1}, false, Logits::kNone, Hidden::kAll},
                                   {{-1}, true, Logits::kLast, Hidden::kAll, false},
                                   {{-1, 0}, false, Logits::kAll, Hidden::kNone},
                                   {{-1, 0}, false, Logits::kLast, Hidden::kNone},
                                   {{-1, 0}, true, Logits::kLast, Hidden::kScored}};

/// A head whose forwards are graphs, beside one without.
class ForwardPair {
 public:
  /// Options of the first one; without are those of the other.
  ForwardPair(const FedHead& head, const std::shared_ptr<RecordingOps>& ops,
              TransformerOptions options = graph_options(),
              const KvStoreFactory& store = paged_kv())
      : width_(head.width), ops_(ops) {
    options.ops = ops;
    graphed_ = model_of(head, target_, options, store);
    options.ops = cuda_ops(at::kCPU);
    options.graphs = 0;
    plain_ = model_of(head, target_, options, store);
  }

  /// Evaluates nodes in both, which have to come to the same; the calls beside a graph.
  std::vector<std::string> forward(const Asked& asked, Token first) {
    std::vector<Token> tokens;
    for (size_t node = 0; node < asked.parents.size(); ++node) {
      tokens.push_back(static_cast<Token>((first + 3 * static_cast<Token>(node)) % 40));
    }
    const auto nodes = std::ssize(tokens);
    const TokenBatch batch{.tokens = token_tensor(tokens),
                           .parents = asked.parents,
                           .inputs = {.features = at::randn({nodes, asked.own ? 16 : width_}),
                                      .own_features = asked.own}};
    const ForwardOptions options{.logits = asked.logits,
                                 .logits_use = LogitsUse::kSampler,
                                 .hidden = asked.hidden,
                                 .keep_hidden = true,
                                 .draft_columns = asked.columns};
    const ForwardResult wanted = plain_->forward(batch, options);
    const DraftLaunches launches(*ops_);
    ForwardResult result = graphed_->forward(batch, options);
    copies = DraftLaunches::copies();
    expect_equal(result.logits, wanted.logits);
    expect_equal(result.final_hidden, wanted.final_hidden);
    EXPECT_EQ(result.sampler != nullptr, wanted.sampler != nullptr);
    expect_held();
    held_ = {result.final_hidden, holds_logits ? result.logits : Tensor()};
    for (size_t i = 0; i < held_.size(); ++i) {
      as_they_were_[i] = held_[i].defined() ? held_[i].clone() : Tensor();
    }
    for (FeatureModel* model : {graphed_.get(), plain_.get()}) {
      EXPECT_EQ(model->pending(), nodes);
      model->commit(std::vector<int64_t>{0});
    }
    return ops_->take_calls();
  }
  void truncate(int64_t length) {
    graphed_->truncate(length);
    plain_->truncate(length);
  }
  FeatureModel& graphed() { return *graphed_; }
  FeatureModel& plain() { return *plain_; }

  int64_t copies = 0;         ///< of the newest forward
  bool holds_logits = false;  ///< until the next forward, which writes its own elsewhere

 private:
  static void expect_equal(const Tensor& own, const Tensor& wanted) {
    ASSERT_EQ(own.defined(), wanted.defined());
    EXPECT_TRUE(!own.defined() || at::equal(own, wanted));
  }
  /// Features are read until the draft ends.
  void expect_held() const {
    for (size_t i = 0; i < held_.size(); ++i) {
      expect_equal(held_[i], as_they_were_[i]);
    }
  }

  std::shared_ptr<const TransformerWeights> target_ = small_gemma();
  int64_t width_;
  std::shared_ptr<RecordingOps> ops_;
  std::unique_ptr<FeatureModel> graphed_, plain_;
  std::array<Tensor, 2> held_, as_they_were_;
};

TEST(CudaHeadForwardTest, AForwardIsOneGraph) {
  for (const FedHead& head : fed_heads(*small_gemma())) {
    SCOPED_TRACE(head.name);
    const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
    ForwardPair pair(head, ops);
    GraphCounts before_last;
    for (Token round = 0; round < 5; ++round) {
      before_last = pair.graphed().graph_counts();
      for (size_t i = 0; i < kAsked.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "round " << round << ", " << i);
        const Asked& asked = kAsked[i];
        const auto calls = pair.forward(asked, round);
        if (round < 2) {  // logits may lie in two places in turn
          continue;
        }
        // Features are copied to where the graph reads them, and from where it writes them. Those
        // of streams that are normed one by one are, before.
        std::vector<std::string> beside;
        for (const std::string& call : calls) {
          if (!call.starts_with("rms_norm") || head.name != "eagle3 of normed streams") {
            beside.push_back(call);
          }
        }
        const auto nodes = std::ssize(asked.parents);
        const int64_t given = asked.hidden == Hidden::kNone     ? 0
                              : asked.hidden == Hidden::kScored ? 1
                                                                : nodes;
        const int64_t width = asked.own ? 16 : head.width;
        std::vector<std::string> copies = {
            fmt::format("copy [{0}, {1}] -> [{0}, {1}]", nodes, width)};
        if (given > 0) {
          copies.push_back(fmt::format("copy [{0}, 16] -> [{0}, 16]", given));
        }
        EXPECT_EQ(beside, copies);
      }
      pair.truncate(4);
    }
    const GraphCounts counts = pair.graphed().graph_counts();
    EXPECT_EQ(counts.captures, std::ssize(kAsked)) << "the memory of results comes back";
    EXPECT_EQ(counts.captures, before_last.captures);
    EXPECT_EQ(counts.replays - before_last.replays, std::ssize(kAsked));
    EXPECT_EQ(pair.plain().graph_counts(), GraphCounts());
  }
}

/// Tokens and tables go up in one block.
TEST(CudaHeadForwardTest, ResultsThatAreHeldHaveTwoGraphs) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  ForwardPair pair({"mtp", 16, nullptr}, ops);
  pair.holds_logits = true;  // so they lie in two places in turn
  const Asked caught_up{{-1, 0}, false, Logits::kLast, Hidden::kAll};
  for (Token step = 0; step < 8; ++step) {
    const GraphCounts before = pair.graphed().graph_counts();
    const auto calls = pair.forward(caught_up, step);
    const GraphCounts after = pair.graphed().graph_counts();
    EXPECT_EQ(after.warm_ups - before.warm_ups, step < 2 ? 1 : 0);
    EXPECT_EQ(after.captures - before.captures, step == 2 || step == 3 ? 1 : 0);
    EXPECT_EQ(after.replays - before.replays, step > 3 ? 1 : 0);
    if (step > 3) {
      EXPECT_EQ(calls.size(), 2U);
      EXPECT_LE(pair.copies, 1);
    }
  }
}

// Each is fed the features of the one before, as a drafter feeds what was committed.
TEST(CudaHeadForwardTest, AStepOfSeveralModulesLaunchesAGraphEach) {
  const auto target = small_gemma();
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  TransformerOptions without = graph_options();
  without.graphs = 0;
  const FeatureModels graphed = three_models(target, graph_options(ops));
  const FeatureModels plain = three_models(target, without);
  const ForwardOptions options{.logits = Logits::kLast,
                               .logits_use = LogitsUse::kSampler,
                               .hidden = Hidden::kAll,
                               .keep_hidden = true};
  constexpr int64_t kSteps = 6;
  for (Token step = 0; step < kSteps; ++step) {
    Tensor features = at::randn({2, 16});
    for (size_t module = 0; module < graphed.size(); ++module) {
      SCOPED_TRACE(testing::Message() << "step " << step << ", module " << module);
      const auto first = static_cast<Token>(step + static_cast<Token>(module));
      const TokenBatch batch{.tokens = token_tensor(std::vector<Token>{first, 3 * first + 1}),
                             .inputs = {.features = features}};
      const ForwardResult wanted = plain[module]->forward(batch, options);
      ops->take_calls();
      const ForwardResult result = graphed[module]->forward(batch, options);
      EXPECT_EQ(ops->take_calls().size() == 2, step > 0) << "what a graph is fed and leaves";
      EXPECT_TRUE(at::equal(result.logits, wanted.logits));
      EXPECT_TRUE(at::equal(result.final_hidden, wanted.final_hidden));
      features = result.final_hidden;
      for (FeatureModel* model : {graphed[module].get(), plain[module].get()}) {
        model->commit(std::vector<int64_t>{0, 1});
      }
    }
  }
  for (const auto& model : graphed) {
    EXPECT_EQ(model->graph_counts(),
              (GraphCounts{.warm_ups = 1, .captures = 1, .replays = kSteps - 2}));
  }
}

// Contexts of 128 positions and more launch other blocks. (Pages never move.)
TEST(CudaHeadForwardTest, ForwardsFollowWhatGrows) {
  GrownCaches caches;
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  ForwardPair pair({"mtp", 16, nullptr}, ops, GrownCaches::options(16), caches.factory());
  const auto forward_at = [&](int64_t length, const Asked& asked) {
    SCOPED_TRACE(length);
    caches.resize(length);
    pair.forward(asked, static_cast<Token>(length % 40));
  };
  for (const auto& grown : GrownCaches::kCases) {
    for (int i = 0; i < 3; ++i) {
      forward_at(grown.length, kAsked.front());
    }
  }
  // Where all tables stay, the shortest contexts are recorded first.
  const Asked& three = kAsked[1];
  forward_at(520, three);
  const GraphCounts before = pair.graphed().graph_counts();
  for (int round = 0; round < 3; ++round) {
    for (const int64_t length : {100, 100, 124, 126, 127, 130, 300}) {
      forward_at(length, three);
    }
  }
  const GraphCounts after = pair.graphed().graph_counts();
  EXPECT_EQ(after.captures - before.captures, 3) << "of 128, 256 and 512 positions";
  EXPECT_EQ(after.replays - before.replays, 21 - 2 * 3);
}

TEST(CudaHeadForwardTest, WhatAGraphCannotHoldRunsAroundTheLayers) {
  const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
  ForwardPair pair({"mtp", 16, nullptr}, ops);
  const RowId rows[] = {pair.graphed().open(), pair.plain().open()};
  ASSERT_EQ(rows[0], rows[1]);
  const auto forward = [&](const TokenBatch& batch, const ForwardOptions& options) {
    const Tensor wanted = pair.plain().forward(batch, options).logits;
    ops->take_calls();
    const Tensor own = pair.graphed().forward(batch, options).logits;
    EXPECT_TRUE(at::equal(own, wanted));
    EXPECT_THAT(ops->take_calls(), testing::Contains(testing::HasSubstr("embed_rows")));
    for (FeatureModel* model : {&pair.graphed(), &pair.plain()}) {
      model->truncate(0);
      model->truncate(0, rows[0]);
    }
  };
  for (int round = 0; round < 3; ++round) {
    // Unequal parts of two rows.
    forward({.tokens = token_tensor(std::vector<Token>{1, 2, 3}),
             .rows = {0, 0, rows[0]},
             .inputs = {.features = at::randn({3, 16})}},
            {.logits = Logits::kLast});
    forward({.tokens = token_tensor(std::vector<Token>{1, 2}),
             .inputs = {.features = at::randn({2, 16}), .attention_bias = at::zeros({2, 2})}},
            {});
  }
  const std::vector<Token> many(65, 7);
  TransformerOptions longer = graph_options(ops);
  longer.max_length = 96;
  const auto target = small_gemma();
  const auto model = model_of({"mtp", 16, nullptr}, target, longer);
  for (int round = 0; round < 3; ++round) {
    (void)model->extend(many, {.logits = Logits::kLast}, {.features = at::randn({65, 16})});
    model->truncate(0);
  }
  EXPECT_EQ(model->graph_counts(), GraphCounts());
}

/// Ops that fail where a head's logits are computed.
class FailingLogits final : public ForwardingOps {
 public:
  FailingLogits() : ForwardingOps(cuda_ops(at::kCPU)) {}
  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    if (fails && out.size(1) == 40) {
      throw Error("the device is lost");
    }
    ForwardingOps::linear(weight, input, out);
  }
  bool records() const override { return true; }
  std::unique_ptr<OpsGraph> record(const std::function<void()>& calls) override {
    return ops().record(calls);
  }
  bool fails = false;
};

TEST(CudaHeadForwardTest, AForwardThatFailsLeavesNothingPending) {
  const auto ops = std::make_shared<FailingLogits>();
  const auto model = model_of({"mtp", 16, nullptr}, small_gemma(), graph_options(ops));
  const TokenBatch batch{.tokens = token_tensor(std::vector<Token>{1, 2}),
                         .inputs = {.features = at::randn({2, 16})}};
  for (const bool is_recorded : {false, true}) {  // op by op, and while it is recorded
    SCOPED_TRACE(is_recorded);
    ops->fails = true;
    EXPECT_THROW(model->forward(batch), Error);
    EXPECT_EQ(model->pending(), 0);
    ops->fails = false;
    EXPECT_EQ(model->forward(batch).logits.size(0), 2);
    model->truncate(0);
  }
  EXPECT_THROW(model->forward({.tokens = token_tensor(std::vector<Token>{40}),
                               .inputs = {.features = at::randn({1, 16})}}),
               Error);
  EXPECT_THROW(model->forward({.tokens = token_tensor(std::vector<Token>{4}),
                               .inputs = {.features = at::randn({1, 32})}}),
               InternalError);
  EXPECT_EQ(model->pending(), 0);
}

}  // namespace
}  // namespace specdec
