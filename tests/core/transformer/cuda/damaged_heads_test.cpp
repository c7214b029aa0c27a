// Heads whose logits are no numbers, or that cannot draw behind what they are given: nothing is
// drafted, and the host says what is wrong.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "core/error.h"
#include "core/kernels/forwarding_ops.h"
#include "tests/core/transformer/cuda/head_bench.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Ops whose logits become NaN from the second row on.
class DamagedRowOps final : public ForwardingOps {
 public:
  DamagedRowOps() : ForwardingOps(cuda_ops(at::kCPU)) {}
  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ForwardingOps::linear(weight, input, out);
    if (out.size(1) == 40 && ++heads_ > 1) {
      out.fill_(std::nan(""));
    }
  }

 private:
  int64_t heads_ = 0;
};

TEST(CudaDamagedHeadTest, DamagedLogitsAreTheHostsError) {
  for (const auto make : {drawn_eagle, drawn_mtp, two_modules, drawn_assistant}) {
    HeadBench bench(DrawnBy::kDevice, make, verifier_of(DeviceRule::kRejection), 3,
                    std::make_shared<DamagedRowOps>());
    EXPECT_THAT([&] { bench.generate(kChainPrompts.front(), {.temperature = 1.0}); },
                ThrowsMessage<Error>(HasSubstr("logit")));
  }
}

/// Ops whose logits, of all tokens or of drawn_medusa's, become NaN in the first graph that holds
/// some, and in all that follows.
class DamagedGraphOps final : public ForwardingOps {
 public:
  DamagedGraphOps() : ForwardingOps(cuda_ops(at::kCPU)) {}
  void linear(const Linear& weight, const Tensor& input, Tensor& out) override {
    ForwardingOps::linear(weight, input, out);
    if (out.size(1) == 40 || out.size(1) == 20) {
      is_damaged_ = is_damaged_ || is_recording_;
      ForwardingOps::scale(out, is_damaged_ ? std::nan("") : 1.0);  // in the graph, too
    }
  }
  bool records() const override { return true; }
  std::unique_ptr<OpsGraph> record(const std::function<void()>& calls) override {
    is_recording_ = true;
    auto graph = ops().record(calls);
    is_recording_ = false;
    return graph;
  }
  bool is_damaged() const { return is_damaged_; }

 private:
  bool is_recording_ = false;
  bool is_damaged_ = false;
};

/// The third of some requests runs a graph whose logits are damaged: the host says so.
void expect_hosts_error(HeadBench::MakeDrafter make, std::unique_ptr<DraftShape> shape) {
  const auto ops = std::make_shared<DamagedGraphOps>();
  HeadBench bench(DrawnBy::kDevice, make, verifier_of(DeviceRule::kNone), std::move(shape), ops);
  EXPECT_THAT(
      [&] {
        for (int request = 0; request < 3; ++request) {
          bench.generate(kChainPrompts.front(), {});
        }
      },
      ThrowsMessage<Error>(HasSubstr("logit")));
  EXPECT_TRUE(ops->is_damaged());
}

TEST(CudaDamagedHeadTest, DamagedGraphsOfChainsAreTheHostsError) {
  for (const auto make : {drawn_eagle, two_modules, drawn_assistant}) {
    expect_hosts_error(make, std::make_unique<FixedDraftLength>(3));
  }
}

TEST(CudaDamagedHeadTest, DamagedGraphsOfTreesAreTheHostsError) {
  for (const auto make : {drawn_eagle, two_modules, drawn_medusa, drawn_assistant}) {
    expect_hosts_error(make, tree_shape());
  }
}

TEST(CudaDamagedHeadTest, AHeadDrawsBehindWhatItKeepsOrNothing) {
  const auto weights = small_gemma();
  const auto head = random_mtp_head(*weights, 1, {.seed = 7});
  const SamplingParams greedy;
  const ChainRequest chain{.count = 3, .sampling = greedy};
  const std::vector<Token> fed = {7, 8};
  const ForwardInputs inputs{.features = at::randn({2, 16})};

  const auto model = make_mtp_model(head, 0, weights, paged_kv(), head_options());
  ASSERT_TRUE(model->draws_drafts());
  const auto drawn = model->draw_chain(fed, chain, {}, inputs);
  ASSERT_TRUE(drawn.has_value());
  EXPECT_EQ(drawn->read_backs, (ReadBacks{1, 3 * 12}));
  EXPECT_EQ(model->pending(), 4) << "the last token is not evaluated";
  EXPECT_THROW(model->draw_chain(fed, chain, {}, inputs), InternalError) << "nodes are pending";
  EXPECT_EQ(model->pending(), 4);
  model->truncate(0);
  EXPECT_THROW(model->draw_chain({}, chain), InternalError);
  EXPECT_THROW(model->draw_chain(std::vector<Token>{40}, chain), Error);
  EXPECT_THROW(model->draw_chain(std::vector<Token>{7}, {.count = 129, .sampling = greedy}), Error);
  EXPECT_EQ(model->pending(), 0);

  const auto damaged =
      make_mtp_model(head, 0, weights, paged_kv(), head_options(std::make_shared<DamagedRowOps>()));
  EXPECT_FALSE(damaged->draw_chain(fed, chain, {}, inputs).has_value());
  EXPECT_EQ(damaged->pending(), 0);
}

}  // namespace
}  // namespace specdec
