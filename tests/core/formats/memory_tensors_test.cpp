#include "core/formats/memory_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

constexpr size_t kBytes = 96;

class MemoryTensorsTest : public testing::Test {
 protected:
  /// The message of adding a tensor of `bytes` bytes.
  std::string complaint(const std::string& name, DType dtype, std::vector<int64_t> shape,
                        size_t bytes) {
    return error_message<WeightsError>([&] { add(name, dtype, std::move(shape), bytes); });
  }
  void add(const std::string& name, DType dtype, std::vector<int64_t> shape, size_t bytes) {
    tensors_.add({.name = name,
                  .dtype = dtype,
                  .shape = std::move(shape),
                  .bytes = std::span(bytes_).first(bytes)});
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(kBytes);
  MemoryTensors tensors_{"my model"};
};

TEST_F(MemoryTensorsTest, FindsWhatWasAdded) {
  add("b", DType::kF32, {2, 3}, 24);
  add("a", DType::kQ80, {2, 32}, 68);
  add("scalar", DType::kF64, {}, 8);
  add("empty", DType::kF32, {0, 5}, 0);
  ASSERT_NE(tensors_.find("a"), nullptr);
  EXPECT_EQ(tensors_.find("a")->dtype, DType::kQ80);
  EXPECT_EQ(tensors_.find("b")->bytes.data(), bytes_.data());
  EXPECT_EQ(tensors_.find("c"), nullptr);
  EXPECT_EQ(tensors_.tensors().size(), 4U);
  EXPECT_EQ(tensors_.folder(), "my model");
}

TEST_F(MemoryTensorsTest, MistakesNameTheTensor) {
  add("a", DType::kF32, {2, 3}, 24);
  EXPECT_THAT(complaint("a", DType::kF32, {2, 3}, 24),
              HasSubstr("my model: tensor 'a' is added twice"));
  EXPECT_THAT(complaint("", DType::kF32, {2, 3}, 24), HasSubstr("has no name"));
  EXPECT_THAT(complaint("b", DType::kBF16, {2, 3}, 24),
              HasSubstr("my model: tensor 'b' has 24 bytes, but shape [2, 3] of BF16 takes 12"));
  EXPECT_THAT(complaint("b", DType::kQ80, {4, 16}, 68), HasSubstr("whole blocks of 32 values"));
  EXPECT_THAT(complaint("b", DType::kQ80, {}, 34), HasSubstr("whole blocks of 32 values"));
  EXPECT_THAT(complaint("b", DType::kF32, {-2, 3}, 24),
              HasSubstr("shape [-2, 3], which no tensor"));
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THAT(complaint("b", DType::kF32, {huge, huge}, 24), HasSubstr("which no tensor can have"));
  EXPECT_EQ(tensors_.tensors().size(), 1U);
}

TEST_F(MemoryTensorsTest, ReadsSafetensorsInMemoryAsAFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "t.safetensors";
  const std::vector<float> values = {1.0F, 2.0F, 3.0F};
  const TensorToWrite tensor{
      .name = "x", .dtype = DType::kF32, .shape = {3}, .bytes = std::as_bytes(std::span(values))};
  write_safetensors(path, std::span(&tensor, 1));
  std::ifstream file(path, std::ios::binary);
  const auto text = std::make_shared<const std::string>(std::istreambuf_iterator<char>(file),
                                                        std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(*text));
  tensors_.add_safetensors(bytes, "part 1", text);
  EXPECT_EQ(text.use_count(), 2);  // it is kept
  const TensorEntry* found = tensors_.find("x");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->shape, std::vector<int64_t>{3});
  EXPECT_EQ(std::memcmp(found->bytes.data(), values.data(), found->bytes.size()), 0);
  EXPECT_THAT(error_message<WeightsError>([&] { tensors_.add_safetensors(bytes, "part 2"); }),
              HasSubstr("tensor 'x' is added twice"));
  EXPECT_THAT(
      error_message<WeightsError>([&] { tensors_.add_safetensors(bytes.first(20), "part 3"); }),
      HasSubstr("part 3: "));
}

}  // namespace
}  // namespace specdec
