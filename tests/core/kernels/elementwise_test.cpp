#include "core/kernels/elementwise.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "core/kernels/ops.h"
#include "tests/support/parameter_name.h"

namespace specdec {
namespace {

class ElementwiseTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(ElementwiseTest, AddsForOddSizes) {
  at::manual_seed(1);
  for (const int64_t size : {1, 7, 16, 45, 5000}) {
    const Tensor input = at::randn({3, size}, GetParam());
    Tensor sum = at::randn({3, size}, GetParam());
    const Tensor wanted = sum + input;
    add_to(sum, input);
    EXPECT_TRUE(at::equal(sum, wanted)) << size;
  }
}

TEST_P(ElementwiseTest, AddsARowToSomeRows) {
  const Tensor row = at::randn({45}, GetParam());
  for (const RowRange& rows : {RowRange{0, 7}, RowRange{2, 5}, RowRange{3, 3}}) {
    Tensor sum = at::randn({7, 45}, GetParam());
    const Tensor wanted = sum.clone();
    wanted.narrow(0, rows.begin, rows.count()).add_(row);
    add_to_rows(sum, rows, row);
    EXPECT_TRUE(at::equal(sum, wanted)) << rows.begin;
  }
}

TEST_P(ElementwiseTest, MultipliesAllByARow) {
  at::manual_seed(4);
  for (const int64_t size : {1, 7, 16, 45, 5000}) {
    const Tensor input = at::randn({3, size}, GetParam());
    const Tensor row = at::randn({size}, GetParam());
    Tensor out = at::empty_like(input);
    multiply_rows(input, row, out);
    EXPECT_TRUE(at::equal(out, input * row)) << size;
  }
}

TEST_P(ElementwiseTest, ScalesForOddSizes) {
  at::manual_seed(2);
  for (const int64_t size : {1, 7, 16, 45, 5000}) {
    const Tensor input = at::randn({3, size}, GetParam());
    Tensor out = at::empty_like(input);
    scaled_copy(input, 25.25, out);
    EXPECT_TRUE(at::equal(out, input * 25.25)) << size;
    scaled_copy(input, 1.0, out);
    EXPECT_TRUE(at::equal(out, input)) << size;
  }
}

TEST_P(ElementwiseTest, CopiesColumns) {
  const Tensor left = at::randn({3, 5}, GetParam());
  const Tensor right = at::randn({3, 4}, GetParam());
  Tensor out = at::empty({3, 9}, GetParam());
  copy_columns(left, 0, out);
  copy_columns(right, 5, out);
  EXPECT_TRUE(at::equal(out, at::cat({left, right}, 1)));
}

TEST_P(ElementwiseTest, GathersRows) {
  const Tensor input = at::randn({4, 5}, GetParam());
  for (const std::vector<int32_t>& rows :
       std::vector<std::vector<int32_t>>{{}, {2}, {0, 0, 0}, {3, 1, 2, 0, 3}}) {
    const Tensor ids = at::tensor(rows, at::kInt);
    Tensor out = at::empty({std::ssize(rows), 5}, GetParam());
    gather_rows(input, ids, out);
    EXPECT_TRUE(at::equal(out, input.index_select(0, ids)));
    EXPECT_TRUE(at::equal(cpu_ops()->Ops::gather_rows(input, ids), out));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ElementwiseTest, testing::Values(at::kFloat, at::kDouble),
                         ParameterName());

TEST(ElementwiseChecksTest, RefuseOperandsThatDoNotFit) {
  const Tensor input = at::zeros({2, 8});
  Tensor narrow = at::zeros({2, 7});
  EXPECT_THROW(add_to(narrow, input), InternalError);
  EXPECT_THROW(scaled_copy(input, 2.0, narrow), InternalError);
  EXPECT_THROW(add_to_rows(narrow, {0, 2}, at::zeros({8})), InternalError);
  EXPECT_THROW(add_to_rows(narrow, {0, 3}, at::zeros({7})), InternalError);
  EXPECT_THROW(add_to_rows(narrow, {1, 0}, at::zeros({7})), InternalError);
  EXPECT_THROW(copy_columns(input, 0, narrow), InternalError);
  Tensor out = at::zeros({2, 8});
  EXPECT_THROW(copy_columns(input, 1, out), InternalError);
  EXPECT_THROW(copy_columns(narrow, -1, out), InternalError);
  EXPECT_THROW(add_to(out, at::zeros({8, 2}).t()), InternalError);
  EXPECT_THROW(gather_rows(narrow, at::zeros({2}, at::kInt), out), InternalError);
  EXPECT_THROW(gather_rows(input, at::zeros({1}, at::kInt), out), InternalError);
  EXPECT_THROW(gather_rows(input, at::zeros({2}, at::kLong), out), InternalError);
  EXPECT_THROW(gather_rows(input, at::full({2}, 2, at::kInt), out), InternalError);
  EXPECT_THROW(gather_rows(input, at::full({2}, -1, at::kInt), out), InternalError);
  EXPECT_THROW(scaled_copy(input.to(at::kDouble), 2.0, out), InternalError);
}

}  // namespace
}  // namespace specdec
