// Trees that heads on a target draw on its device, run on the CPU (core/kernels/cuda/emulation): as
// one graph or forward by forward they have the bits of trees that grow level by level.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/transformer/heads/feature_model.h"
#include "kv/kv_cache.h"
#include "tests/core/transformer/cuda/drawn_chain_bench.h"
#include "tests/core/transformer/cuda/emulated_model.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// A head whose trees are drawn, and what it is fed of the target.
struct HeadTree {
  std::string name;
  std::function<std::unique_ptr<LanguageModel>(const TransformerOptions& options)> make;
  int64_t feature_width;
  int64_t fed;
  SamplingParams sampling;

  TransformerOptions options(std::shared_ptr<Ops> ops, int64_t graphs) const {
    return {.max_length = 64, .ops = std::move(ops), .graphs = graphs};
  }
};

std::vector<HeadTree> head_trees() {
  const auto weights = small_gemma();
  const auto eagle = random_eagle_head(
      make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *weights), {.seed = 5});
  auto config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, *weights);
  config.capture_layers = {0, 1};
  config.draft_vocab_size = 24;
  const auto eagle3 = random_eagle_head(config, {.seed = 6});
  eagle3->target_ids = (at::arange(24) * 7 + 3).remainder(40);
  const auto mtp = random_mtp_head(*weights, 1, {.seed = 7});
  const auto make_eagle = [weights](const std::shared_ptr<const EagleHead>& head) {
    return [weights, head](const TransformerOptions& options) -> std::unique_ptr<LanguageModel> {
      return make_eagle_model(head, weights, paged_kv(), options);
    };
  };
  return {{"eagle", make_eagle(eagle), 16, 1, {.temperature = 1.0}},
          {"eagle3", make_eagle(eagle3), 32, 2, {.temperature = 1.2, .top_k = 2}},
          {"eagle3 of best tokens", make_eagle(eagle3), 32, 1, {}},
          {"mtp",
           [weights, mtp](const TransformerOptions& options) -> std::unique_ptr<LanguageModel> {
             return make_mtp_model(mtp, 0, weights, paged_kv(), options);
           },
           16,
           2,
           {.top_k = 2}}};
}

TreeRequest head_request(const std::vector<int64_t>& parents, const std::vector<int64_t>& ranks,
                         const SamplingParams& sampling, int64_t position) {
  TreeRequest request{.parents = parents, .ranks = ranks, .sampling = sampling};
  if (!sampling.greedy()) {
    request.random =
        DeviceRandomness{.key = *CounterRandomness(8).device_key(), .position = position};
  }
  return request;
}

/// The tree as a drafter grows it: `fed` are kept, then a forward for each level.
std::optional<DrawnTree> grown_by_head(LanguageModel& head, TokenSpan fed, const Tensor& features,
                                       TreeRequest request) {
  request.vocabulary = head.draft_vocabulary();
  ForwardOptions options{.logits = Logits::kLast,
                         .keep_logits = true,
                         .hidden = Hidden::kScored,
                         .keep_hidden = true,
                         .draft_columns = true};
  std::unique_ptr<DraftTreeDrawing> drawing;
  std::vector<Tensor> own(request.parents.size());
  std::vector<int64_t> pending(request.parents.size(), -1);
  int64_t next = 0;
  int64_t found = 0;
  Tensor tokens;
  for (const std::vector<int64_t>& level : branching_nodes(request.parents)) {
    ForwardResult result;
    if (level.front() == 0) {
      result = head.extend(fed, options, {.features = features});
      drawing = result.sampler->begin_tree(request, result.logits.size(1));
    } else {
      options.logits = Logits::kAll;
      TokenBatch batch{.tokens = tokens};
      std::vector<Tensor> before;
      for (const int64_t node : level) {
        const auto parent = static_cast<size_t>(request.parents[static_cast<size_t>(node)]);
        batch.parents.push_back(pending[parent]);
        before.push_back(own[parent]);
        pending[static_cast<size_t>(node)] = next++;
      }
      batch.inputs = {.features = at::cat(before), .own_features = true};
      result = head.forward(batch, options);
    }
    for (size_t i = 0; i < level.size(); ++i) {
      own[static_cast<size_t>(level[i])] =
          result.final_hidden.narrow(0, static_cast<int64_t>(i), 1).clone();
    }
    tokens = drawing->draw(found++, result.logits, {});
  }
  return drawing->read(found);
}

/// Levels of the same sizes, whose features go to other nodes, and others.
const std::vector<std::vector<int64_t>> kHeadTrees = {
    {-1, 0, 0, 0, 1, 1, 2, 5, 6, 6}, {-1, 0, 0, 0, 2, 3, 3, 5, 5, 6}, {-1, 0, 1, 2, 3, 3}};

// The first tree of a key runs by forwards, which may be graphs, the second op by op; then only
// what is fed of the target runs beside the graph.
TEST(CudaDrawnHeadTreeTest, ATreeIsOneGraph) {
  for (const HeadTree& head : head_trees()) {
    SCOPED_TRACE(head.name);
    const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
    const auto graphed = head.make(head.options(ops, 32));
    const auto plain = head.make(head.options(cuda_ops(at::kCPU), 0));
    const auto trees = static_cast<Token>(kHeadTrees.size());
    for (Token draft = 0; draft < 4 * trees; ++draft) {
      SCOPED_TRACE(draft);
      const std::vector<int64_t>& parents = kHeadTrees[static_cast<size_t>(draft % trees)];
      std::vector<int64_t> ranks = {0};
      for (size_t node = 1; node < parents.size(); ++node) {
        ranks.push_back(parents[node] == parents[node - 1] ? ranks.back() + 1 : 0);
      }
      const std::vector<Token> fed = {draft, 9};
      const TokenSpan tokens = TokenSpan(fed).first(static_cast<size_t>(head.fed));
      const Tensor features = at::randn({head.fed, head.feature_width});
      const TreeRequest request = head_request(parents, ranks, head.sampling, draft);
      const auto wanted = grown_by_head(*plain, tokens, features, request);
      ops->take_calls();
      const auto drawn = graphed->draw_tree(tokens, request, {}, {.features = features});
      const bool attends =
          testing::Matches(testing::Contains(HasSubstr("paged_attention")))(ops->take_calls());
      EXPECT_TRUE(draft < trees || attends == (draft < 2 * trees));
      ASSERT_TRUE(drawn.has_value() && wanted.has_value());
      EXPECT_EQ(drawn->tokens, wanted->tokens);
      EXPECT_EQ(drawn->read_backs, wanted->read_backs);
      ASSERT_EQ(drawn->probs.defined(), !head.sampling.greedy());
      EXPECT_TRUE(!drawn->probs.defined() || at::equal(drawn->probs, wanted->probs));
      int64_t evaluated = -1;
      for (const auto& level : branching_nodes(parents)) {
        evaluated += std::ssize(level);
      }
      EXPECT_EQ(graphed->pending(), head.fed + evaluated);
      graphed->commit(chain_path(head.fed));
      plain->commit({});
      for (LanguageModel* model : {graphed.get(), plain.get()}) {
        model->truncate(std::min<int64_t>(model->length(), 4));
      }
    }
    // What trees leave in the cache is what forwards do.
    const TokenBatch next{.tokens = token_tensor(std::vector<Token>{3}),
                          .rows = {0},
                          .inputs = {.features = at::randn({1, head.feature_width})}};
    EXPECT_TRUE(at::equal(graphed->forward(next).logits, plain->forward(next).logits));
  }
}

TEST(CudaDrawnHeadTreeTest, AHeadDrawsBehindWhatItKeepsOrNothing) {
  const HeadTree head = head_trees().front();
  const auto model = head.make(head.options(cuda_ops(at::kCPU), 32));
  const std::vector<int64_t> ranks = {0, 0, 1, 2, 0, 1, 0, 0, 0, 1};
  const TreeRequest tree = head_request(kHeadTrees.front(), ranks, head.sampling, 3);
  const std::vector<Token> fed = {7};
  for (int draft = 0; draft < 3; ++draft) {
    const ForwardInputs damaged{.features = at::full({1, 16}, std::nan(""))};
    EXPECT_FALSE(model->draw_tree(fed, tree, {}, damaged).has_value());
    EXPECT_EQ(model->pending(), 0);
  }
  const ForwardInputs inputs{.features = at::randn({1, 16})};
  EXPECT_TRUE(model->draw_tree(fed, tree, {}, inputs).has_value());
  EXPECT_THROW(model->draw_tree(fed, tree, {}, inputs), InternalError) << "nodes are pending";
  EXPECT_EQ(model->pending(), 5);
  model->truncate(0);
  EXPECT_THROW(model->draw_tree({}, tree), InternalError);
  EXPECT_THROW(model->draw_tree(std::vector<Token>{40}, tree), Error);
  EXPECT_EQ(model->pending(), 0);
}

}  // namespace
}  // namespace specdec
