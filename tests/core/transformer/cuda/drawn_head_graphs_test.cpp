// Drafts of a head as one graph each: they have the bits of those without graphs, and leave in the
// head's cache what forwards do.
#include <gmock/gmock.h>

#include <functional>

#include "core/error.h"
#include "tests/core/transformer/cuda/head_bench.h"
#include "tests/support/recording_ops.h"

namespace specdec {
namespace {

using testing::HasSubstr;

/// A head's chain, and what it is fed.
struct HeadChain {
  std::string name;
  std::function<std::unique_ptr<LanguageModel>(const TransformerOptions& options)> make;
  int64_t feature_width;
  int64_t fed;
  bool is_drawn;
};

std::vector<HeadChain> head_chains() {
  const auto weights = small_gemma();
  const auto eagle = random_eagle_head(
      make_eagle_config(EagleVersion::kEagle, LayerStyle::kGemma, *weights), {.seed = 5});
  auto config = make_eagle_config(EagleVersion::kEagle3, LayerStyle::kLlama, *weights);
  config.capture_layers = {0, 1};
  config.draft_vocab_size = 24;
  const auto eagle3 = random_eagle_head(config, {.seed = 6});
  eagle3->target_ids = (at::arange(24) * 7 + 3).remainder(40);
  config.layers = 3;
  const auto layered = random_eagle_head(config, {.seed = 6});
  layered->target_ids = eagle3->target_ids;
  const auto mtp = random_mtp_head(*weights, 2, {.seed = 7});
  const auto make_eagle = [weights](const std::shared_ptr<const EagleHead>& head) {
    return [weights, head](const TransformerOptions& options) -> std::unique_ptr<LanguageModel> {
      return make_eagle_model(head, weights, paged_kv(), options);
    };
  };
  return {{"eagle", make_eagle(eagle), 16, 1, true},
          {"eagle3", make_eagle(eagle3), 32, 2, true},
          {"eagle3 of best tokens", make_eagle(eagle3), 32, 1, false},
          {"eagle3 of three layers", make_eagle(layered), 32, 2, true},
          {"mtp",
           [weights, mtp](const TransformerOptions& options) -> std::unique_ptr<LanguageModel> {
             return make_mtp_model(mtp, 1, weights, paged_kv(), options);
           },
           16, 2, false}};
}

/// The only op beside the graph of a draft: the target's features are copied to where it reads
/// them.
std::string copied_features(const HeadChain& head) {
  return fmt::format("copy [{0}, {1}] -> [{0}, {1}]", head.fed, head.feature_width);
}

TransformerOptions without_graphs() {
  TransformerOptions options = head_options();
  options.graphs = 0;
  return options;
}

// The first chain of a key runs forward by forward, the second op by op.
TEST(CudaDrawnHeadGraphTest, AChainIsOneGraph) {
  const ChainDraws draws;
  for (const HeadChain& head : head_chains()) {
    SCOPED_TRACE(head.name);
    const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
    const auto graphed = head.make(head_options(ops));
    const auto plain = head.make(without_graphs());
    for (Token chain = 0; chain < 5; ++chain) {
      SCOPED_TRACE(chain);
      const std::vector<Token> fed = {chain, 9};
      const TokenSpan tokens = TokenSpan(fed).first(static_cast<size_t>(head.fed));
      const ForwardInputs inputs{.features = at::randn({head.fed, head.feature_width})};
      ChainDraws own = draws;
      own.random.position = chain;
      const ChainRequest request = head.is_drawn ? own.drawn(4) : own.best(4);
      const auto wanted = plain->draw_chain(tokens, request, {}, inputs);
      const DraftLaunches launches(*ops);
      const auto drawn = graphed->draw_chain(tokens, request, {}, inputs);
      if (chain < 2) {
        EXPECT_THAT(ops->take_calls(), testing::Contains(HasSubstr("paged_attention")));
      } else {
        EXPECT_THAT(ops->take_calls(), testing::ElementsAre(copied_features(head)));
        // A draft vocabulary's distributions are widened to the target's.
        EXPECT_LE(launches.copies(), head.feature_width == 32 && head.is_drawn ? 2 : 1);
      }
      ASSERT_TRUE(drawn.has_value() && wanted.has_value());
      EXPECT_EQ(drawn->tokens, wanted->tokens);
      EXPECT_EQ(drawn->read_backs, wanted->read_backs);
      ASSERT_EQ(drawn->probs.defined(), head.is_drawn);
      EXPECT_TRUE(!head.is_drawn || at::equal(drawn->probs, wanted->probs));
      for (LanguageModel* model : {graphed.get(), plain.get()}) {
        EXPECT_EQ(model->pending(), head.fed + 3);
        model->commit(chain_path(head.fed));
      }
    }
    const std::vector<Token> fed(static_cast<size_t>(head.fed), 9);
    const ForwardInputs damaged{.features = at::full({head.fed, head.feature_width}, std::nan(""))};
    const ChainRequest last = head.is_drawn ? draws.drawn(4) : draws.best(4);
    ops->take_calls();
    EXPECT_FALSE(graphed->draw_chain(fed, last, {}, damaged).has_value());
    EXPECT_THAT(ops->take_calls(), testing::ElementsAre(copied_features(head)));
    EXPECT_EQ(graphed->pending(), 0);
    // What chains leave in the cache is what forwards do.
    const TokenBatch next{.tokens = token_tensor(std::vector<Token>{3}),
                          .rows = {0},
                          .inputs = {.features = at::randn({1, head.feature_width})}};
    EXPECT_TRUE(at::equal(graphed->forward(next).logits, plain->forward(next).logits));
  }
}

/// Levels of the same sizes, whose features go to other nodes, and others.
const std::vector<std::vector<int64_t>> kHeadTrees = {
    {-1, 0, 0, 0, 1, 1, 2, 5, 6, 6}, {-1, 0, 0, 0, 2, 3, 3, 5, 5, 6}, {-1, 0, 1, 2, 3, 3}};
const std::vector<int64_t> kHeadRanks = {0, 0, 1, 2, 0, 1, 2, 3, 4, 5};

// The first tree of a key runs by forwards, which may be graphs, the second op by op.
TEST(CudaDrawnHeadGraphTest, ATreeIsOneGraph) {
  const ChainDraws draws;
  const auto trees = static_cast<Token>(kHeadTrees.size());
  for (const HeadChain& head : head_chains()) {
    SCOPED_TRACE(head.name);
    const auto ops = std::make_shared<RecordingOps>(cuda_ops(at::kCPU));
    const auto graphed = head.make(head_options(ops));
    const auto plain = head.make(without_graphs());
    for (Token draft = 0; draft < 4 * trees; ++draft) {
      SCOPED_TRACE(draft);
      const std::vector<int64_t>& parents = kHeadTrees[static_cast<size_t>(draft % trees)];
      TreeRequest request{.parents = parents,
                          .ranks = std::span(kHeadRanks).first(parents.size()),
                          .sampling = draws.sampling};
      if (head.is_drawn) {
        request.random = DeviceRandomness{.key = draws.random.key, .position = draft};
      }
      const std::vector<Token> fed = {draft, 9};
      const TokenSpan tokens = TokenSpan(fed).first(static_cast<size_t>(head.fed));
      const Tensor features = at::randn({head.fed, head.feature_width});
      const auto wanted = grown_tree(*plain, tokens, request, features);
      ops->take_calls();
      const auto drawn = graphed->draw_tree(tokens, request, {}, {.features = features});
      const std::vector<std::string> calls = ops->take_calls();
      const bool attends = testing::Matches(testing::Contains(HasSubstr("paged_attention")))(calls);
      if (draft > 5) {
        EXPECT_THAT(calls, testing::ElementsAre(copied_features(head)));
      }
      // The first two trees have one key, so that of the third one alone is new to the second
      // round.
      EXPECT_TRUE(draft < trees || attends == (draft == 5));
      expect_the_same_tree(drawn, wanted);
      EXPECT_EQ(graphed->pending(), head.fed + plain->pending());
      graphed->commit(chain_path(head.fed));
      plain->commit({});
      for (LanguageModel* model : {graphed.get(), plain.get()}) {
        model->truncate(std::min<int64_t>(model->length(), 4));
      }
    }
    const std::vector<Token> fed(static_cast<size_t>(head.fed), 9);
    const TreeRequest last{
        .parents = kHeadTrees.front(), .ranks = kHeadRanks, .sampling = draws.sampling};
    const ForwardInputs damaged{.features = at::full({head.fed, head.feature_width}, std::nan(""))};
    EXPECT_FALSE(graphed->draw_tree(fed, last, {}, damaged).has_value());
    EXPECT_EQ(graphed->pending(), 0);
    EXPECT_THROW(graphed->draw_tree({}, last), InternalError);
    EXPECT_THROW(graphed->draw_tree(std::vector<Token>{40}, last), Error);
    // What trees leave in the cache is what forwards do.
    const TokenBatch next{.tokens = token_tensor(std::vector<Token>{3}),
                          .rows = {0},
                          .inputs = {.features = at::randn({1, head.feature_width})}};
    EXPECT_TRUE(at::equal(graphed->forward(next).logits, plain->forward(next).logits));
  }
}

}  // namespace
}  // namespace specdec
