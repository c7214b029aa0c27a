// Models of the first layers of a file, against models that have no others, bit by bit.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>

#include "core/error.h"
#include "core/kv_snapshot.h"
#include "core/transformer/transformer_model.h"
#include "kv/paged_kv.h"
#include "tests/support/tiny_gemma.h"
#include "tests/support/tiny_gemma4.h"

namespace specdec {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::vector<Token> kText = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};

/// "" = Gemma 3.
class ActiveLayersTest : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<const TransformerWeights> weights_ =
      GetParam().empty() ? tiny_gemma(11, at::kFloat) : tiny_gemma4(GetParam(), 11, at::kFloat);
  const int64_t layers_ = std::ssize(weights_->layers);
};

/// Plain tensors without the layers from `count` on.
std::shared_ptr<const TransformerWeights> cut(const TransformerWeights& weights, int64_t count) {
  TransformerTensors tensors = unpack(weights);
  tensors.layers.erase(tensors.layers.begin() + count, tensors.layers.end());
  tensors.plan.erase(tensors.plan.begin() + count, tensors.plan.end());
  return pack(tensors);
}

TEST_P(ActiveLayersTest, EqualAModelWithoutTheOthers) {
  for (int64_t count = 1; count <= layers_; ++count) {
    TransformerModel active(weights_, paged_kv(4), {.active_layers = count});
    TransformerModel alone(cut(*weights_, count), paged_kv(4));
    const ForwardOptions all{.hidden = Hidden::kAll};
    const ForwardResult found = active.prefill(kText, all);
    const ForwardResult wanted = alone.prefill(kText, all);
    EXPECT_TRUE(at::equal(found.logits, wanted.logits)) << count;
    EXPECT_TRUE(at::equal(found.final_hidden, wanted.final_hidden)) << count;
    const std::vector<Token> next = {7};
    EXPECT_TRUE(at::equal(active.decode_get_logits(next), alone.decode_get_logits(next)));
    EXPECT_EQ(active.internals()->num_layers(), count);
    EXPECT_TRUE(at::equal(active.internals()->key_values(count - 1, 0).first,
                          alone.internals()->key_values(count - 1, 0).first));
  }
}

TEST_P(ActiveLayersTest, EqualAnEarlyExitOfTheWhole) {
  TransformerModel whole(weights_, paged_kv(4));
  for (int64_t count = 1; count <= layers_; ++count) {
    std::vector<int64_t> layers(static_cast<size_t>(count));
    std::iota(layers.begin(), layers.end(), 0);
    TransformerModel active(weights_, paged_kv(4), {.active_layers = count});
    const TokenBatch batch{.tokens = token_tensor(kText)};
    EXPECT_TRUE(
        at::equal(active.forward(batch).logits, whole.forward(batch, {.layers = layers}).logits))
        << count;
    whole.truncate(0);
  }
}

TEST_P(ActiveLayersTest, HaveNamesOfTheirOwn) {
  std::set<std::string> keys;
  std::set<std::string> fingerprints;
  for (int64_t count = 0; count <= layers_; ++count) {
    TransformerModel active(weights_, paged_kv(4), {.active_layers = count});
    keys.insert(active.snapshots()->kv_key());
    fingerprints.insert(active.adapters().fingerprint());
  }
  EXPECT_EQ(std::ssize(keys), layers_) << "0 is all";
  EXPECT_EQ(std::ssize(fingerprints), layers_);
  EXPECT_EQ(first_layers(weights_, layers_), weights_);
}

TEST_P(ActiveLayersTest, OutOfRangeIsNamed) {
  for (const int64_t count : {int64_t{-1}, layers_ + 1}) {
    EXPECT_THAT([&] { TransformerModel(weights_, paged_kv(4), {.active_layers = count}); },
                ThrowsMessage<ConfigError>(HasSubstr(fmt::format(
                    "active_layers is {}, but the model has {} layers", count, layers_))));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ActiveLayersTest, testing::Values("", "dense", "e", "moe", "3n"),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param.empty() ? "gemma3" : "gemma4_" + info.param;
                         });

}  // namespace
}  // namespace specdec
