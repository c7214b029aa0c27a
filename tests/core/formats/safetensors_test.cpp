#include "core/formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The bytes of a file with this header and so many bytes of data.
std::string file_bytes(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(header.size() >> (8 * i));
  }
  return bytes + header + std::string(data_bytes, '\x01');
}

class SafetensorsTest : public ::testing::Test {
 protected:
  // What reading a file of these bytes complains about.
  std::string complaint(const std::string& bytes) const {
    const auto path = folder_.write("bad.safetensors", bytes);
    const std::string message = error_message<WeightsError>([&] { SafetensorsFile file(path); });
    EXPECT_THAT(message, HasSubstr(path.string())) << "names the file";
    return message;
  }
  std::string header_complaint(const std::string& header, size_t data_bytes = 8) const {
    return complaint(file_bytes(header, data_bytes));
  }

  TemporaryFolder folder_;
};

TEST_F(SafetensorsTest, ReadsWhatItWrote) {
  const std::array<float, 6> floats = {1, 2, 3, 4, 5, 6};
  const std::array<int8_t, 3> bytes = {-1, 0, 1};
  const auto path = folder_.path() / "out.safetensors";
  write_safetensors(path,
                    std::vector<TensorToWrite>{
                        {"small", DType::kI8, {3}, std::as_bytes(std::span(bytes))},
                        {"matrix", DType::kF32, {2, 3}, std::as_bytes(std::span(floats))},
                        {"scalar", DType::kF32, {}, std::as_bytes(std::span(floats).first(1))},
                        {"none", DType::kF64, {0, 4}, {}}},
                    {{"format", "pt"}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 4U);
  const TensorEntry* matrix = file.find("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->dtype, DType::kF32);
  EXPECT_THAT(matrix->shape, ElementsAre(2, 3));
  ASSERT_EQ(matrix->bytes.size(), sizeof floats);
  EXPECT_EQ(std::memcmp(matrix->bytes.data(), floats.data(), sizeof floats), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(matrix->bytes.data()) % 4, 0U) << "aligned";
  EXPECT_THAT(file.find("scalar")->shape, ElementsAre());
  EXPECT_EQ(file.find("scalar")->bytes.size(), 4U);
  EXPECT_EQ(file.find("none")->bytes.size(), 0U);
  EXPECT_EQ(file.find("matri"), nullptr);
}

TEST_F(SafetensorsTest, ReleasedTensorCanBeReadAgain) {
  const std::vector<float> values(100'000, 2.5F);
  const auto path = folder_.path() / "out.safetensors";
  write_safetensors(path, std::vector<TensorToWrite>{
                              {"x", DType::kF32, {100'000}, std::as_bytes(std::span(values))}});
  const SafetensorsFile file(path);
  const TensorEntry& entry = file.tensors()[0];
  EXPECT_EQ(std::memcmp(entry.bytes.data(), values.data(), entry.bytes.size()), 0);
  file.release(entry);
  EXPECT_EQ(std::memcmp(entry.bytes.data(), values.data(), entry.bytes.size()), 0);
  const TensorEntry copy = entry;
  EXPECT_THROW(file.release(copy), InternalError);
}

TEST_F(SafetensorsTest, MovedFileKeepsItsTensors) {
  const auto path = folder_.write(
      "a.safetensors", file_bytes(R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", 8));
  SafetensorsFile first(path);
  const SafetensorsFile second(std::move(first));
  ASSERT_NE(second.find("x"), nullptr);
  EXPECT_EQ(second.find("x")->bytes[7], std::byte{1});
}

TEST_F(SafetensorsTest, RefusesWrongLengths) {
  EXPECT_THAT(complaint(""), HasSubstr("empty"));
  EXPECT_THAT(complaint("1234567"), HasSubstr("too few"));
  EXPECT_THAT(complaint(std::string("\x10\0\0\0\0\0\0\0{}", 10)), HasSubstr("only 10 in all"));
  EXPECT_THAT(complaint(std::string("\x01\xE1\xF5\x05\0\0\0\0{}", 10)), HasSubstr("100000000"));
  EXPECT_THAT(complaint(std::string(8, '\xFF') + "{}"), HasSubstr("18446744073709551615"));
}

TEST_F(SafetensorsTest, MetadataMayBeNull) {
  const SafetensorsFile file(
      folder_.write("null.safetensors", file_bytes(R"({"__metadata__":null})", 0)));
  EXPECT_TRUE(file.metadata().empty());
}

TEST_F(SafetensorsTest, RefusesHeadersThatAreNoObject) {
  EXPECT_THAT(header_complaint("[1, 2]"), HasSubstr("array, not an object"));
  EXPECT_THAT(header_complaint("{\"a\":"), HasSubstr(":1:6: not valid JSON"));
  EXPECT_THAT(header_complaint("{\"a\xFF\":1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_complaint(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(header_complaint(R"({"x":1,"x":1})"), HasSubstr("\"x\" stands twice"));
  EXPECT_THAT(header_complaint(std::string(100'000, '[')), HasSubstr("levels deep"));
  EXPECT_THAT(header_complaint(R"({"__metadata__":[]})"), HasSubstr("object of strings"));
  EXPECT_THAT(header_complaint(R"({"__metadata__":{"a":1}})"), HasSubstr("\"a\" is not a string"));
}

TEST_F(SafetensorsTest, RefusesWrongDescriptionsNamingTheTensor) {
  const auto tensor_complaint = [this](const std::string& description, size_t data_bytes = 8) {
    const std::string message = header_complaint("{\"w.x\":" + description + "}", data_bytes);
    EXPECT_THAT(message, HasSubstr("\"w.x\"")) << "names the tensor";
    return message;
  };
  EXPECT_THAT(tensor_complaint("3"), HasSubstr("not an object"));
  EXPECT_THAT(tensor_complaint("{}"), HasSubstr("\"dtype\""));
  EXPECT_THAT(tensor_complaint(R"({"dtype":"F4","shape":[2],"data_offsets":[0,8]})"),
              AllOf(HasSubstr("F4"), HasSubstr("known: F64, F32")));
  EXPECT_THAT(tensor_complaint(R"({"dtype":"F32","data_offsets":[0,8]})"), HasSubstr("\"shape\""));
  EXPECT_THAT(tensor_complaint(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"),
              HasSubstr("holds -2"));
  EXPECT_THAT(tensor_complaint(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"),
              HasSubstr("holds 2.0"));
  EXPECT_THAT(
      tensor_complaint(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"),
      HasSubstr("not a whole number"));
  EXPECT_THAT(
      tensor_complaint(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"),
      HasSubstr("too large"));
  EXPECT_THAT(tensor_complaint(R"({"dtype":"F32","shape":[2]})"), HasSubstr("\"data_offsets\""));
  EXPECT_THAT(tensor_complaint(R"({"dtype":"F32","shape":[2],"data_offsets":[8]})"),
              HasSubstr("[begin, end]"));
  EXPECT_THAT(tensor_complaint(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
              HasSubstr("[begin, end]"));
  EXPECT_THAT(tensor_complaint(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9]})"),
              HasSubstr("holds only 8 bytes"));
  EXPECT_THAT(tensor_complaint(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
              HasSubstr("shape [3] of F32 needs 12 bytes"));
  EXPECT_THAT(tensor_complaint(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"),
              HasSubstr("overlap or leave a hole"));
}

TEST_F(SafetensorsTest, RefusesOverlapsHolesAndLeftovers) {
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(error_message<WeightsError>([&] {
              SafetensorsFile file(
                  folder_.write("good.safetensors", file_bytes(two("[4,8]", "[0,4]"), 8)));
              EXPECT_EQ(file.tensors()[0].name, "b") << "in the order of the data";
            }),
            "no error");
  EXPECT_THAT(header_complaint(two("[0,4]", "[0,4]")), HasSubstr("overlap"));
  EXPECT_THAT(header_complaint(two("[0,4]", "[2,6]")), HasSubstr("overlap"));
  EXPECT_THAT(header_complaint(two("[0,4]", "[5,9]"), 9), HasSubstr("hole"));
  EXPECT_THAT(header_complaint(two("[0,4]", "[4,8]"), 11), HasSubstr("3 bytes after"));
}

TEST_F(SafetensorsTest, EveryTruncationIsAnError) {
  const std::string bytes = file_bytes(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}})", 8);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(complaint(bytes.substr(0, length)), "no error") << length;
  }
}

TEST_F(SafetensorsTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(error_message<WeightsError>([&] { SafetensorsFile file(folder_.path()); }),
              HasSubstr("not a regular file"));
  EXPECT_THAT(error_message<WeightsError>([&] { SafetensorsFile file(folder_.path() / "no"); }),
              HasSubstr("cannot open"));
}

TEST_F(SafetensorsTest, WriterLeavesNothingBehindWhenItFails) {
  const std::array<float, 1> value = {1};
  const std::vector<TensorToWrite> tensors = {
      {"x", DType::kF32, {1}, std::as_bytes(std::span(value))}};
  EXPECT_THAT(error_message<Error>(
                  [&] { write_safetensors(folder_.path() / "none" / "x.safetensors", tensors); }),
              HasSubstr("cannot create"));
  std::filesystem::create_directories(folder_.path() / "taken" / "full");
  EXPECT_THAT(error_message<Error>([&] { write_safetensors(folder_.path() / "taken", tensors); }),
              HasSubstr("is a folder"));
  const std::vector<TensorToWrite> wrong = {
      {"x", DType::kF32, {2}, std::as_bytes(std::span(value))}};
  EXPECT_THROW(write_safetensors(folder_.path() / "y.safetensors", wrong), InternalError);
  const std::vector<TensorToWrite> twice = {tensors[0], tensors[0]};
  EXPECT_THROW(write_safetensors(folder_.path() / "y.safetensors", twice), InternalError);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1)
      << "only the folder that was there";
}

TEST_F(SafetensorsTest, ReadsTheGoldenShards) {
  const CheckpointTensors checkpoint(std::filesystem::path(SPECDEC_SOURCE_DIR) /
                                     "tests/data/gemma3-bf16-sharded-a");
  EXPECT_EQ(checkpoint.tensors().size(), 80U);
  const TensorEntry* norm = checkpoint.find("model.norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->dtype, DType::kBF16);
  EXPECT_EQ(dtype_name(norm->dtype), "BF16");
  checkpoint.release(*norm);
  const TensorEntry stranger;
  EXPECT_THROW(checkpoint.release(stranger), InternalError);
}

class CheckpointTensorsTest : public ::testing::Test {
 protected:
  CheckpointTensorsTest() {
    folder_.write("one.safetensors", shard("a"));
    folder_.write("two.safetensors", shard("b"));
  }
  static std::string shard(const std::string& name) {
    return file_bytes("{\"" + name + R"(":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", 8);
  }
  std::string index_complaint(const std::string& index) const {
    folder_.write("model.safetensors.index.json", index);
    return error_message<WeightsError>([&] { CheckpointTensors tensors(folder_.path()); });
  }

  TemporaryFolder folder_;
};

TEST_F(CheckpointTensorsTest, ReadsShardsByTheirIndex) {
  EXPECT_EQ(index_complaint(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"),
            "no error");
}

TEST_F(CheckpointTensorsTest, RefusesAnIndexThatDoesNotFit) {
  EXPECT_THAT(index_complaint("{"), HasSubstr("index.json:1:2: not valid JSON"));
  EXPECT_THAT(index_complaint("[]"), HasSubstr("weight_map"));
  EXPECT_THAT(index_complaint(R"({"weight_map":{}})"), HasSubstr("names no tensors"));
  EXPECT_THAT(index_complaint(R"({"weight_map":{"a":"three.safetensors"}})"),
              AllOf(HasSubstr("three.safetensors"), HasSubstr("is missing")));
  EXPECT_THAT(
      index_complaint(
          R"({"weight_map":{"a":"two.safetensors","b":"two.safetensors","c":"one.safetensors"}})"),
      AllOf(HasSubstr("\"a\""), HasSubstr("is in one.safetensors")));
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", "",
                           "a\\\\b", "a\\u0000b"}) {
    EXPECT_THAT(index_complaint(std::string(R"({"weight_map":{"a":")") + name + "\"}}"),
                HasSubstr("not the plain name"))
        << name;
  }
  EXPECT_THAT(index_complaint(R"({"weight_map":{"a":1}})"), HasSubstr("not the plain name"));
}

TEST_F(CheckpointTensorsTest, KnowsWhatTheIndexPromisesAndNoShardHolds) {
  folder_.write(
      "model.safetensors.index.json",
      R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors","mtp.x":"two.safetensors"}})");
  const CheckpointTensors checkpoint(folder_.path());
  const std::vector<std::pair<std::string, std::string>> missing = {{"mtp.x", "two.safetensors"}};
  EXPECT_EQ(checkpoint.missing(), missing);
  EXPECT_EQ(checkpoint.find("mtp.x"), nullptr);
}

TEST_F(CheckpointTensorsTest, FindsTensorsThatTheIndexDoesNotName) {
  folder_.write("two.safetensors",
                file_bytes(R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                           R"("z":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                           8));
  folder_.write("model.safetensors.index.json",
                R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const CheckpointTensors checkpoint(folder_.path());
  EXPECT_NE(checkpoint.find("z"), nullptr);
  EXPECT_TRUE(checkpoint.missing().empty());
}

TEST_F(CheckpointTensorsTest, RefusesFoldersWithoutWeights) {
  EXPECT_THAT(error_message<WeightsError>([&] { CheckpointTensors all(folder_.path() / "no"); }),
              HasSubstr("no such folder"));
  EXPECT_THAT(error_message<WeightsError>([&] { CheckpointTensors all(folder_.path()); }),
              HasSubstr("none of model.safetensors"));
}

}  // namespace
}  // namespace specdec
