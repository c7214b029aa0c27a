#include "core/kernels/forbidden_tokens.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"

namespace specdec {
namespace {

TEST(ForbiddenTokensTest, GetNoLogitsAndOthersKeepTheirs) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor plain = at::randn({3, 8}, dtype);
    at::Tensor logits = plain.clone();
    ForbiddenTokens(8, 6, {1, 4}).apply(logits);
    at::Tensor wanted = plain.clone();
    for (const int64_t token : {1, 4, 6, 7}) {
      wanted.select(1, token).fill_(kNever);
    }
    EXPECT_TRUE(at::equal(logits, wanted)) << dtype;
  }
}

TEST(ForbiddenTokensTest, NoneChangeNothing) {
  const at::Tensor plain = at::randn({3, 8});
  at::Tensor logits = plain.clone();
  ForbiddenTokens(8, 0, {}).apply(logits);
  EXPECT_TRUE(at::equal(logits, plain));
}

TEST(ForbiddenTokensTest, OthersThanThoseOfTheVocabularyAreRefused) {
  EXPECT_THROW(ForbiddenTokens(8, 9, {}), InternalError);
  EXPECT_THROW(ForbiddenTokens(8, -1, {}), InternalError);
  EXPECT_THROW(ForbiddenTokens(8, 0, {8}), InternalError);
  EXPECT_THROW(ForbiddenTokens(8, 0, {-1}), InternalError);
  at::Tensor narrow = at::zeros({2, 5});
  EXPECT_THROW(ForbiddenTokens(8, 6, {}).apply(narrow), InternalError);
}

}  // namespace
}  // namespace specdec
