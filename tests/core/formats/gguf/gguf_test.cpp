#include "core/formats/gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/formats/gguf/gguf_blocks.h"
#include "core/formats/strict_json.h"
#include "core/hash.h"
#include "core/tokenizers/gguf_tokenizer.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::filesystem::path kGgufData =
    std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/data/gguf";

/// Writes the bytes of a GGUF file.
class GgufWriter {
 public:
  template <class T>
  GgufWriter& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  GgufWriter& text(const std::string& text) {
    put<uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  GgufWriter& header(uint32_t version, uint64_t tensors, uint64_t values) {
    bytes_ += "GGUF";
    return put(version).put(tensors).put(values);
  }
  GgufWriter& integer(const std::string& key, uint32_t value) {
    return text(key).put<uint32_t>(4).put(value);
  }
  GgufWriter& tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
                     uint64_t offset) {
    text(name).put<uint32_t>(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) {
      put(size);
    }
    return put(type).put(offset);
  }
  GgufWriter& data(size_t size, size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    bytes_.append(size, '\x01');
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

GgufContent parse(const std::string& bytes) {
  return parse_gguf({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "a.gguf");
}

std::string gguf_complaint(const std::string& bytes) {
  const std::string message = error_message<WeightsError>([&] { parse(bytes); });
  EXPECT_THAT(message, HasSubstr("a.gguf"));
  return message;
}

TEST(GgufTest, ReadsValuesAndTensors) {
  for (const uint32_t version : {2U, 3U}) {
    GgufWriter file;
    file.header(version, 2, 7).integer("a.count", 7).integer("general.alignment", 64);
    file.text("a.low").put<uint32_t>(5).put<int32_t>(-3);
    file.text("a.eps").put<uint32_t>(6).put(0.5F);
    file.text("a.yes").put<uint32_t>(7).put<uint8_t>(1);
    file.text("a.name").put<uint32_t>(8).text("x y");
    file.text("a.list").put<uint32_t>(9).put<uint32_t>(8).put<uint64_t>(2).text("p").text("");
    file.tensor("w", {4, 3}, 0, 64).tensor("q", {32, 2}, 3, 0).data(64 + 48, 64);
    const GgufContent content = parse(file.bytes());
    const GgufMetadata& metadata = content.metadata;
    EXPECT_EQ(metadata.integer("a.count"), 7);
    EXPECT_EQ(metadata.integer("a.low"), -3);
    EXPECT_EQ(metadata.number("a.eps"), 0.5);
    EXPECT_EQ(metadata.number("a.count"), 7.0);
    EXPECT_TRUE(metadata.boolean("a.yes", false));
    EXPECT_EQ(metadata.text("a.name"), "x y");
    EXPECT_THAT(metadata.texts("a.list"), ElementsAre("p", ""));
    ASSERT_EQ(content.tensors.size(), 2U);
    EXPECT_EQ(content.tensors[0].dtype, DType::kF32);
    EXPECT_THAT(content.tensors[0].shape, ElementsAre(3, 4));
    EXPECT_EQ(content.tensors[1].dtype, DType::kQ41);
    EXPECT_EQ(content.tensors[1].bytes.size(), 40U);
  }
}

TEST(GgufTest, ValuesOfOtherTypesAreErrors) {
  GgufMetadata metadata("a.gguf");
  metadata.add("a", std::string("x"));
  EXPECT_THAT(error_message<WeightsError>([&] { metadata.integer("a"); }),
              HasSubstr("a.gguf: 'a' should be an integer"));
  EXPECT_THAT(error_message<WeightsError>([&] { metadata.text("b"); }),
              HasSubstr("'b' is missing from the metadata"));
  EXPECT_EQ(metadata.integer("b", 4), 4);
}

TEST(GgufTest, NumbersThatAreNotFiniteAreErrors) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  GgufMetadata metadata("a.gguf");
  for (const double value : {std::nan(""), kInfinity, -kInfinity}) {
    metadata.add("a", value);
    EXPECT_THAT(error_message<WeightsError>([&] { metadata.number("a", 1.0); }),
                HasSubstr("a.gguf: 'a' is "));
    metadata.add("b", std::vector<float>{0.5F, static_cast<float>(value)});
    EXPECT_THAT(error_message<WeightsError>([&] { metadata.numbers("b"); }),
                HasSubstr("as its entry 1, which is not a finite number"));
  }
}

TEST(GgufTest, DamagedHeadersAreErrors) {
  EXPECT_THAT(gguf_complaint(""), HasSubstr("does not begin with \"GGUF\""));
  EXPECT_THAT(gguf_complaint("GGML12345678"), HasSubstr("does not begin with \"GGUF\""));
  EXPECT_THAT(gguf_complaint(GgufWriter().header(1, 0, 0).bytes()), HasSubstr("version 1"));
  EXPECT_THAT(gguf_complaint(GgufWriter().header(0x03000000, 0, 0).bytes()),
              HasSubstr("little-endian"));
  EXPECT_THAT(gguf_complaint(GgufWriter().header(3, 0, uint64_t{1} << 60).bytes()),
              HasSubstr("metadata values, more than fit"));
  EXPECT_THAT(gguf_complaint(GgufWriter().header(3, uint64_t{1} << 60, 0).bytes()),
              HasSubstr("tensors, more than fit"));
}

TEST(GgufTest, DamagedValuesNameTheKey) {
  const auto value = [](uint32_t type) {
    GgufWriter file;
    file.header(3, 0, 1).text("a.key").put(type);
    return file;
  };
  EXPECT_THAT(gguf_complaint(value(77).data(64).bytes()),
              HasSubstr("'a.key' has the unknown type 77. The file is damaged"));
  EXPECT_THAT(gguf_complaint(value(77).data(64).bytes()), Not(HasSubstr("..")));
  EXPECT_THAT(gguf_complaint(value(10).put(~uint64_t{0}).data(9).bytes()),
              HasSubstr("'a.key' is out of range"));
  EXPECT_THAT(gguf_complaint(value(9).put<uint32_t>(4).put(uint64_t{1} << 40).data(9).bytes()),
              HasSubstr("entries of 'a.key'"));
  EXPECT_THAT(gguf_complaint(value(9).put<uint32_t>(9).put<uint64_t>(1).data(9).bytes()),
              HasSubstr("list of lists"));
  GgufWriter twice;
  twice.header(3, 0, 2).integer("a.key", 1).integer("a.key", 2);
  EXPECT_THAT(gguf_complaint(twice.bytes()), HasSubstr("'a.key' comes twice"));
}

TEST(GgufTest, DamagedTensorsAreNamed) {
  const auto tensor = [](const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
    GgufWriter file;
    return gguf_complaint(file.header(3, 1, 0).tensor("w", sizes, type, offset).data(64).bytes());
  };
  EXPECT_THAT(tensor({4, 5}, 0, 0), HasSubstr("tensor 'w' (80 bytes at offset 0) lies beyond"));
  EXPECT_THAT(tensor({4, 4}, 0, 32), HasSubstr("lies beyond"));
  EXPECT_THAT(tensor({4}, 0, ~uint64_t{31}), HasSubstr("lies beyond"));
  EXPECT_THAT(tensor({uint64_t{1} << 40, uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0),
              HasSubstr("(2^64 or more bytes at offset 0) lies beyond"));
  EXPECT_THAT(tensor({uint64_t{1} << 30, 5}, 0, 0), HasSubstr("(21474836480 bytes at offset 0)"));
  EXPECT_THAT(tensor({4}, 0, 3), HasSubstr("not aligned to 32"));
  EXPECT_THAT(tensor({4}, 99, 0), HasSubstr("tensor 'w' has the type 99, which is not supported"));
  EXPECT_THAT(tensor({33}, 2, 0), HasSubstr("not whole blocks of 32 (Q4_0)"));
  EXPECT_THAT(tensor({0}, 0, 0), HasSubstr("a dimension of 0"));
  EXPECT_THAT(tensor({1, 1, 1, 1, 1}, 0, 0), HasSubstr("5 dimensions"));
}

TEST(GgufTest, TensorsThatOverlapAreErrors) {
  const auto two = [](uint64_t first, uint64_t second) {
    GgufWriter file;
    file.header(3, 2, 0).tensor("a", {16}, 0, first).tensor("b", {8}, 0, second);
    return file.data(96).bytes();
  };
  EXPECT_NO_THROW(parse(two(0, 64)));
  EXPECT_NO_THROW(parse(two(32, 0)));
  EXPECT_THAT(gguf_complaint(two(0, 32)), HasSubstr("tensors 'a' and 'b' overlap"));
  EXPECT_THAT(gguf_complaint(two(0, 0)), HasSubstr("overlap"));
}

TEST(GgufTest, TensorsFollowOneAnother) {
  const auto two = [](uint32_t type, uint64_t first) {  // 40 bytes of Q4_1, or 36 of Q4_0
    GgufWriter file;
    file.header(3, 2, 0).tensor("a", {64}, type, first).tensor("b", {8}, 0, first + 64);
    return file.data(first + 96).bytes();
  };
  EXPECT_NO_THROW(parse(two(3, 0)));
  EXPECT_NO_THROW(parse(two(2, 0)));  // what is aligned hides it
  EXPECT_THAT(gguf_complaint(two(3, 32)),
              HasSubstr("tensor 'a' lies at offset 32, where 0 was expected"));
  GgufWriter file;
  file.header(3, 2, 0).tensor("a", {16}, 1, 0).tensor("b", {8}, 0, 64);  // F16 for F32
  EXPECT_THAT(gguf_complaint(file.data(128).bytes()),
              HasSubstr("tensor 'b' lies at offset 64, where 32 was expected: the type or size of "
                        "tensor 'a' is wrong"));
}

TEST(GgufTest, BytesAfterTheLastTensorAreAnError) {
  const auto file = [](size_t bytes) {
    GgufWriter writer;
    writer.header(3, 2, 0).tensor("a", {16}, 0, 32).tensor("b", {5}, 0, 0);
    return writer.data(bytes).bytes();
  };
  EXPECT_NO_THROW(parse(file(96)));
  EXPECT_THAT(gguf_complaint(file(97)),
              HasSubstr("1 bytes after the last of its 2 tensors belong to none"));
  GgufWriter padded;
  padded.header(3, 1, 0).tensor("b", {5}, 0, 0);
  for (const size_t bytes : {20U, 21U, 32U}) {
    EXPECT_NO_THROW(parse(GgufWriter(padded).data(bytes).bytes())) << bytes;
  }
  GgufWriter none;  // as the first file of a split model may be
  none.header(3, 0, 0);
  EXPECT_NO_THROW(parse(none.bytes()));
  EXPECT_NO_THROW(parse(none.data(0).bytes()));
}

TEST(GgufTest, TensorsThatTheCountLeavesOutAreAnError) {
  std::string whole = read_file(kGgufData / "llama-q4_1.gguf");
  EXPECT_NO_THROW(parse(whole));
  --whole[8];  // the number of tensors
  EXPECT_THAT(gguf_complaint(whole), HasSubstr("tensors belong to none"));
}

TEST(GgufTest, EveryTruncationIsAnError) {
  const std::string whole = read_file(kGgufData / "llama-q4_1.gguf");
  for (size_t size = 0; size < whole.size(); size += 1 + size / 16) {
    EXPECT_THROW(parse(whole.substr(0, size)), WeightsError) << size;
  }
}

TEST(GgufTest, SplitFilesAreOneModel) {
  const TemporaryFolder folder;
  const auto part = [](uint32_t number, const std::string& tensor) {
    GgufWriter file;
    file.header(3, 1, 2).integer("split.count", 2).integer("split.no", number);
    return file.tensor(tensor, {4}, 0, 0).data(16).bytes();
  };
  folder.write("m-00001-of-00002.gguf", part(0, "a"));
  const auto second = folder.write("m-00002-of-00002.gguf", part(1, "b"));
  const GgufFile file(second);
  EXPECT_NE(file.find("a"), nullptr);
  EXPECT_NE(file.find("b"), nullptr);
  EXPECT_EQ(file.metadata().integer("split.no"), 0);
  std::filesystem::remove(folder.path() / "m-00001-of-00002.gguf");
  EXPECT_THAT(error_message<WeightsError>([&] { GgufFile again(second); }),
              HasSubstr("m-00001-of-00002.gguf is missing"));
  const auto renamed = folder.write("other.gguf", part(0, "a"));
  EXPECT_THAT(error_message<WeightsError>([&] { GgufFile again(renamed); }),
              HasSubstr("not named like one"));
}

TEST(GgufTest, SplitFilesOfOtherModelsAreErrors) {
  const TemporaryFolder folder;
  const auto complaint = [&](uint32_t count, uint32_t number, uint32_t tensors) {
    const auto part = [&](uint32_t own_count, uint32_t own_number, const std::string& tensor) {
      GgufWriter file;
      file.header(3, 1, 3).integer("split.count", own_count).integer("split.no", own_number);
      file.integer("split.tensors.count", tensors);
      return file.tensor(tensor, {4}, 0, 0).data(16).bytes();
    };
    const auto first = folder.write("m-00001-of-00002.gguf", part(2, 0, "a"));
    folder.write("m-00002-of-00002.gguf", part(count, number, "b"));
    return error_message<WeightsError>([&] { GgufFile file(first); });
  };
  EXPECT_EQ(complaint(2, 1, 2), "no error");
  EXPECT_THAT(complaint(3, 1, 2),
              HasSubstr("m-00002-of-00002.gguf: 'split.count' is 3, but should be 2"));
  EXPECT_THAT(complaint(2, 0, 2),
              HasSubstr("m-00002-of-00002.gguf: 'split.no' is 0, but should be 1"));
  EXPECT_THAT(complaint(2, 1, 3), HasSubstr("'split.tensors.count' is 3, but the model's 2 files "
                                            "hold 2 tensors"));
}

TEST(GgufTest, IsKnownByItsContent) {
  const TemporaryFolder folder;
  EXPECT_TRUE(is_gguf(folder.write("weights", GgufWriter().header(3, 0, 0).bytes())));
  EXPECT_FALSE(is_gguf(folder.write("b.gguf", "GGM")));
  EXPECT_FALSE(is_gguf(folder.path()));
  EXPECT_FALSE(is_gguf(folder.path() / "none"));
}

TEST(GgufTest, OtherFilesAreRefused) {
  const TemporaryFolder folder;
  const auto message = [&folder](const std::string& bytes) {
    const auto path = folder.write("a.gguf", bytes);
    return error_message<WeightsError>([&] { refuse_other_file(path); });
  };
  for (const char* other : {"a text\n", "GGM", "GGML1234"}) {
    EXPECT_THAT(message(other), HasSubstr("a.gguf: is not a GGUF file (it does not begin with"));
  }
  EXPECT_THAT(message(""), HasSubstr("a.gguf: is empty"));
  EXPECT_EQ(message(GgufWriter().header(3, 0, 0).bytes()), "no error");
  EXPECT_NO_THROW(refuse_other_file(folder.path()));
}

TEST(GgufTest, FilesThatCannotBeOpenedAreNotCalledDamaged) {
  const TemporaryFolder folder;
  const auto path = folder.write("model.gguf", "GGUF");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);  // root may open any file: it has no more left
  const auto message = error_message<WeightsError>([&] { refuse_other_file(path); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(message, HasSubstr("model.gguf: cannot open: Too many open files."));
}

// scripts/make_gguf_blocks writes the file.
TEST(GgufBlocksTest, ValuesAreGgufPysBitByBit) {
  const std::string file = read_file(kGgufData / "blocks.bin");
  size_t at = 0;
  const auto take = [&](void* out, size_t size) {
    ASSERT_LE(at + size, file.size());
    std::memcpy(out, file.data() + at, size);
    at += size;
  };
  const DType formats[] = {
      DType::kQ40,    DType::kQ41,   DType::kQ50,  DType::kQ51,    DType::kQ80,  DType::kQ2K,
      DType::kQ3K,    DType::kQ4K,   DType::kQ5K,  DType::kQ6K,    DType::kIq1S, DType::kIq1M,
      DType::kIq2Xxs, DType::kIq2Xs, DType::kIq2S, DType::kIq3Xxs, DType::kIq3S, DType::kIq4Nl,
      DType::kIq4Xs,  DType::kTq1,   DType::kTq2,  DType::kMxfp4,  DType::kNvfp4};
  for (const DType dtype : formats) {
    char name[9] = {};
    uint32_t count = 0;
    uint64_t hash = 0;
    take(name, 8);
    take(&count, sizeof(count));
    ASSERT_EQ(name, std::string(dtype_name(dtype)));
    std::vector<std::byte> blocks(count * static_cast<size_t>(dtype_bytes(dtype)));
    take(blocks.data(), blocks.size());
    take(&hash, sizeof(hash));
    std::vector<float> first(static_cast<size_t>(block_values(dtype)));
    take(first.data(), first.size() * sizeof(float));
    std::vector<float> values(count * first.size());
    dequantize(dtype, blocks.data(), static_cast<int64_t>(values.size()), values.data());
    EXPECT_EQ(std::memcmp(values.data(), first.data(), first.size() * sizeof(float)), 0) << name;
    EXPECT_EQ(fnv1a(kHashStart, values.data(), values.size() * sizeof(float)), hash) << name;
  }
  EXPECT_EQ(at, file.size());
}

}  // namespace
}  // namespace specdec
