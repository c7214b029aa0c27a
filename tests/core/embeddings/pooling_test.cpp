#include "core/embeddings/pooling.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/golden.h"

namespace specdec {
namespace {

using testing::HasSubstr;

TEST(PoolingTest, EveryKindIsThatOfSentenceTransformers) {
  const Golden golden(test_data("embeddinggemma-a/golden.safetensors"), Golden::File{});
  const at::Tensor states = golden.tensor("sentence.hidden");
  for (const char* name :
       {"mean", "lasttoken", "max", "cls", "mean_sqrt_len_tokens", "weightedmean"}) {
    const at::Tensor pooled = pool_states(states, parse_pooling(name));
    EXPECT_LE(max_difference(pooled, golden.tensor(std::string("sentence.") + name)), 1e-5) << name;
  }
}

TEST(PoolingTest, SkippedTokensDoNotCount) {
  const at::Tensor states = at::tensor({9.0, 9.0, 1.0, 2.0, 5.0, 2.0}).reshape({3, 2});
  const auto pooled = [&](Pooling pooling) { return pool_states(states, pooling, 1); };
  EXPECT_TRUE(at::equal(pooled(Pooling::kMean), at::tensor({3.0, 2.0})));
  EXPECT_TRUE(at::equal(pooled(Pooling::kMax), at::tensor({5.0, 2.0})));
  EXPECT_TRUE(at::equal(pooled(Pooling::kCls), at::tensor({1.0, 2.0})));
  EXPECT_TRUE(at::equal(pooled(Pooling::kLast), at::tensor({5.0, 2.0})));
  // Weights stay those of the places in the whole text: 2 and 3.
  EXPECT_LE(max_difference(pooled(Pooling::kWeightedMean), at::tensor({3.4, 2.0})), 1e-12);
  EXPECT_THROW(pool_states(states, Pooling::kMean, 3), InternalError);
}

TEST(PoolingTest, NamesGoBothWaysAndUnknownOnesAreListed) {
  for (const char* name : {"mean", "last", "max", "cls", "mean_sqrt_len_tokens", "weightedmean"}) {
    EXPECT_EQ(pooling_name(parse_pooling(name)), name);
  }
  EXPECT_THAT(error_message<ConfigError>([] { (void)parse_pooling("median"); }),
              HasSubstr("unknown pooling 'median'; known: mean, last, max, cls"));
}

}  // namespace
}  // namespace specdec
