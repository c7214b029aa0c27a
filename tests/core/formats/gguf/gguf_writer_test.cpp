#include "core/formats/gguf/gguf_writer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/gguf/gguf_blocks.h"
#include "core/formats/gguf/gguf_quantize.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::ElementsAre;

std::vector<std::byte> counted(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i);
  }
  return bytes;
}

TEST(GgufFileWriterTest, TheReaderFindsWhatWasWritten) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.gguf";
  const GgufEntries metadata = {{"a.integer", int64_t{7}},
                                {"a.large", int64_t{1} << 40},
                                {"a.number", 0.5},
                                {"a.truth", true},
                                {"a.text", std::string("t\u00e4xt")},
                                {"a.integers", std::vector<int64_t>{-1, 2}},
                                {"a.numbers", std::vector<float>{0.25F}},
                                {"a.texts", std::vector<std::string>{"", "b"}},
                                {"a.truths", std::vector<bool>{true, false}}};
  GgufFileWriter writer(path, metadata, {{"odd", DType::kF16, {3}}, {"m", DType::kF32, {2, 5}}});
  writer.write(counted(6));
  const auto matrix = counted(40);
  writer.write(std::span(matrix).first(16));  // in two parts
  writer.write(std::span(matrix).last(24));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.commit();
  const GgufFile file(path);
  const GgufMetadata& read = file.metadata();
  EXPECT_EQ(read.integer("a.integer"), 7);
  EXPECT_EQ(read.integer("a.large"), int64_t{1} << 40);
  EXPECT_EQ(read.number("a.number"), 0.5);
  EXPECT_TRUE(read.boolean("a.truth", false));
  EXPECT_EQ(read.text("a.text"), "t\u00e4xt");
  EXPECT_THAT(read.integers("a.integers"), ElementsAre(-1, 2));
  EXPECT_THAT(read.numbers("a.numbers"), ElementsAre(0.25F));
  EXPECT_THAT(read.texts("a.texts"), ElementsAre("", "b"));
  EXPECT_THAT(read.integers("a.truths"), ElementsAre(1, 0));
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_THAT(file.find("m")->shape, ElementsAre(2, 5));
  EXPECT_EQ(std::memcmp(file.find("odd")->bytes.data(), counted(6).data(), 6), 0);
  EXPECT_EQ(std::memcmp(file.find("m")->bytes.data(), matrix.data(), 40), 0);
}

TEST(GgufFileWriterTest, TooManyOrTooFewBytesAreABug) {
  const TemporaryFolder folder;
  GgufFileWriter writer(folder.path() / "m.gguf", {}, {{"t", DType::kF32, {2}}});
  EXPECT_THROW(writer.commit(), InternalError);
  EXPECT_THROW(writer.write(counted(9)), InternalError);
}

TEST(GgufQuantizeTest, HalvesAreThoseOfATen) {
  std::vector<float> values = {0.0F,  -0.0F,    1.0F,     65504.0F, 65519.9F,   65520.0F, 1e9F,
                               -1e9F, 0x1p-14F, 0x1p-24F, 0x1p-25F, 0x1.8p-25F, 5.96e-8F};
  for (int i = 0; i < 20000; ++i) {
    values.push_back(std::ldexp(1.0F + static_cast<float>(i * 37 % 10007) / 10007.0F, i % 42 - 26));
  }
  for (const float value : values) {
    EXPECT_EQ(half_bits(value), at::Half(value).x) << value;
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(at::Half(half_bits(NAN), at::Half::from_bits()))));
}

TEST(GgufQuantizeTest, BlocksHoldRoundedMultiplesOfTheScale) {
  std::vector<float> values(64, 0.0F);  // the second block is zero
  values[0] = -127.0F;                  // so that the scale is 1
  values[1] = 2.5F;
  values[2] = -2.5F;
  values[3] = 3.49F;
  std::vector<std::byte> blocks(68);
  quantize_q8_0(values.data(), 64, blocks.data());
  std::vector<float> back(64);
  dequantize(DType::kQ80, blocks.data(), 64, back.data());
  EXPECT_EQ(back[0], -127.0F);
  EXPECT_EQ(back[1], 3.0F);  // halves away from zero, as gguf-py
  EXPECT_EQ(back[2], -3.0F);
  EXPECT_EQ(back[3], 3.0F);
  EXPECT_EQ(back[40], 0.0F);
  values.assign(64, 1e-41F);  // no scale in half precision, nor an inverse
  quantize_q8_0(values.data(), 64, blocks.data());
  dequantize(DType::kQ80, blocks.data(), 64, back.data());
  EXPECT_EQ(back[5], 0.0F);
}

}  // namespace
}  // namespace specdec
