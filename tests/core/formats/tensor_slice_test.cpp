#include "core/formats/tensor_slice.h"

#include <gtest/gtest.h>

#include "core/formats/tensor_layout.h"

namespace specdec {
namespace {

/// A tensor over `storage`, whose bytes are their own positions.
TensorEntry entry_over(std::vector<std::byte>& storage, DType dtype, std::vector<int64_t> shape) {
  TensorEntry entry;
  entry.name = "whole";
  entry.dtype = dtype;
  entry.shape = std::move(shape);
  const TensorLayout layout{.name = "whole", .dtype = dtype, .shape = entry.shape};
  storage.resize(layout.bytes());
  for (size_t i = 0; i < storage.size(); ++i) {
    storage[i] = static_cast<std::byte>(i % 251);
  }
  entry.bytes = storage;
  return entry;
}

TEST(TensorSliceTest, AnExpertOfAStackIsAMatrixOverItsBytes) {
  std::vector<std::byte> storage;
  const TensorEntry stack = entry_over(storage, DType::kBF16, {3, 4, 5});
  EXPECT_EQ(flat_rows(stack), 12);
  const TensorEntry expert = slice_rows(stack, 2 * 4, {4, 5}, "experts.2.down_proj");
  EXPECT_EQ(expert.name, "experts.2.down_proj");
  EXPECT_EQ(expert.dtype, DType::kBF16);
  EXPECT_EQ(expert.shape, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(expert.bytes.data(), storage.data() + 2 * 4 * 5 * 2);
  EXPECT_EQ(expert.bytes.size(), 4 * 5 * 2);
}

TEST(TensorSliceTest, RowsOfBlocksAreWholeBlocks) {
  std::vector<std::byte> storage;
  const TensorEntry fused = entry_over(storage, DType::kQ80, {6, 64});
  const TensorEntry keys = slice_rows(fused, 4, {1, 64}, "k");
  EXPECT_EQ(keys.bytes.data(), storage.data() + 4 * 2 * 34);
  EXPECT_EQ(keys.bytes.size(), 2 * 34);
}

TEST(TensorSliceTest, AStackOfVectorsGivesItsVectors) {
  std::vector<std::byte> storage;
  const TensorEntry stack = entry_over(storage, DType::kF32, {3, 7});
  const TensorEntry one = slice_rows(stack, 1, {7}, "one");
  EXPECT_EQ(one.shape, (std::vector<int64_t>{7}));
  EXPECT_EQ(one.bytes.data(), storage.data() + 28);
  EXPECT_EQ(one.bytes.size(), 28);
}

TEST(TensorSliceTest, RowsThatAreNotThereAreABug) {
  std::vector<std::byte> storage;
  TensorEntry matrix = entry_over(storage, DType::kF32, {8, 3});
  EXPECT_THROW(slice_rows(matrix, 6, {3, 3}, "too many"), std::logic_error);
  EXPECT_THROW(slice_rows(matrix, -1, {3, 3}, "before"), std::logic_error);
  EXPECT_THROW(slice_rows(matrix, 0, {3, 4}, "other length"), std::logic_error);
  EXPECT_EQ(slice_rows(matrix, 8, {0, 3}, "none").bytes.size(), 0);
  matrix.interleaved_rows = 4;
  EXPECT_THROW(slice_rows(matrix, 2, {4, 3}, "cut"), std::logic_error);
  EXPECT_EQ(slice_rows(matrix, 4, {4, 3}, "group").interleaved_rows, 4);
}

}  // namespace
}  // namespace specdec
