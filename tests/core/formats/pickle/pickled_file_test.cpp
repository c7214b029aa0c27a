#include "core/formats/pickle/pickled_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>

#include "core/error.h"
#include "core/formats/pickle/pickle.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Files that torch.save of PyTorch 2.11 has written.
std::filesystem::path saved(const std::string& name) {
  return std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/data/pickled" / (name + ".bin");
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

template <class Number>
std::vector<Number> values(const TensorFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  EXPECT_NE(entry, nullptr) << name;
  std::vector<Number> numbers(entry->bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), entry->bytes.data(), entry->bytes.size());
  return numbers;
}

std::string complaint(const std::filesystem::path& path) {
  const std::string message = error_message<WeightsError>([&] { const PickledFile file(path); });
  EXPECT_THAT(message, HasSubstr(path.string()));
  return message;
}

TEST(PickledFileTest, ReadsAStateDict) {
  const PickledFile file(saved("state_dict"));
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_THAT(values<float>(file, "fc.weight"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(file.find("fc.weight")->shape, ElementsAre(2, 3));
  EXPECT_THAT(values<float>(file, "fc.bias"), ElementsAre(0.5F, -0.5F));
  EXPECT_EQ(file.find("ids")->dtype, DType::kI64);
  EXPECT_THAT(values<int64_t>(file, "ids"), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(file.find("fc"), nullptr);
  file.release(*file.find("fc.weight"));
  EXPECT_THAT(values<float>(file, "fc.weight"), ElementsAre(0, 1, 2, 3, 4, 5)) << "read again";
}

TEST(PickledFileTest, ReadsViewsAndAllTypes) {
  const PickledFile file(saved("views"));
  EXPECT_THAT(values<float>(file, "transposed"), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(file.find("transposed")->shape, ElementsAre(3, 2));
  EXPECT_THAT(values<float>(file, "tail"), ElementsAre(5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(file.find("tail")->shape, ElementsAre(7, 1));
  EXPECT_THAT(values<float>(file, "head"), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(file.find("bf16")->dtype, DType::kBF16);
  EXPECT_THAT(values<uint16_t>(file, "bf16"), ElementsAre(0x3fc0, 0xc000));
  EXPECT_THAT(values<uint16_t>(file, "f16"), ElementsAre(0x3400));
  EXPECT_THAT(values<double>(file, "f64"), ElementsAre(3.0));
  EXPECT_THAT(file.find("f64")->shape, IsEmpty());
  EXPECT_THAT(values<int8_t>(file, "i8"), ElementsAre(-1, 2));
  EXPECT_EQ(file.find("flag")->dtype, DType::kBool);
  EXPECT_THAT(values<float>(file, "parameter"), ElementsAre(7));
  EXPECT_THAT(values<float>(file, "none"), IsEmpty());
  EXPECT_EQ(file.find("fp8")->dtype, DType::kF8E4M3);
  EXPECT_THAT(values<uint8_t>(file, "fp8"), ElementsAre(0x38, 0x40));
}

TEST(PickledFileTest, ReadsANewerProtocol) {
  const PickledFile file(saved("protocol_4"));
  EXPECT_THAT(values<float>(file, "a"), ElementsAre(0, 1, 2));
  EXPECT_THAT(values<float>(file, "b"), ElementsAre(1));
}

TEST(PickledFileTest, OtherFilesAreRefused) {
  EXPECT_THAT(complaint(saved("nested")), AllOf(HasSubstr("'state_dict' is a dictionary"),
                                                HasSubstr("torch.save(x['state_dict']")));
  EXPECT_THAT(complaint(saved("module")), HasSubstr("torch.nn.modules.linear Linear"));
  EXPECT_THAT(complaint(saved("number")), HasSubstr("'step' is an integer, not a tensor"));
  EXPECT_THAT(complaint(saved("before_1_6")), HasSubstr("torch.save(torch.load(FILE), FILE)"));
  EXPECT_THAT(complaint(saved("expanded")), HasSubstr("tensor 'a' of shape [3]"));
  EXPECT_THAT(complaint(saved("views_of_one")), HasSubstr("take more memory than the file"));
  const TemporaryFolder folder;
  EXPECT_THAT(complaint(folder.write("empty.bin", "")), HasSubstr("empty"));
  EXPECT_THAT(complaint(folder.write("text.bin", "weights")), HasSubstr("download it again"));
}

/// A text as a pickle holds it.
std::string pickled_text(const std::string& text) {
  std::string code = "X";
  for (const unsigned shift : {0U, 8U, 16U, 24U}) {
    code += static_cast<char>(text.size() >> shift & 255U);
  }
  return code + text;
}

/// A tensor of a class of torchao's with attributes, which are keys and values in turn.
std::string pickled_object(const std::string& type, const std::string& attributes) {
  return "(ctorch._utils\n_rebuild_wrapper_subclass\nctorchao.quantization\n" + type + "\n)}(" +
         attributes + "ut";
}

PickledTensors read_code(const std::string& code) {
  return read_pickled_tensors(std::as_bytes(std::span(code)), "data.pkl");
}

/// What is read of a dictionary of one such tensor.
std::string said_of(const std::string& type, const std::string& attributes) {
  return read_code("\x80\x02}(" + pickled_text("a.weight") +
                   "ctorch._tensor\n_rebuild_from_type_v2\n" + pickled_object(type, attributes) +
                   "Ru.")
      .metadata.at("a.weight");
}

TEST(PickledFileTest, LongTextsOfTensorsAreLeftOut) {
  const std::string key = pickled_text("note");
  const std::string text(256, 'n');
  EXPECT_THAT(said_of("Int8Tensor", key + pickled_text(text)), HasSubstr(text));
  EXPECT_THAT(said_of("Int8Tensor", key + pickled_text(text + 'n')), HasSubstr("\"note\":null"));
  const std::string name(257, 'n');
  for (const auto& read : {std::function([&] { said_of(name, key + key); }), std::function([&] {
                             said_of("Int8Tensor", pickled_text(name) + key);
                           })}) {
    EXPECT_THAT(error_message<WeightsError>(read),
                AllOf(HasSubstr("data.pkl: "), HasSubstr("a name in a tensor has 257 bytes"),
                      HasSubstr("damaged")));
  }
}

/// The value 0 of the pickle's memory is a text, 1 a tensor that holds it often.
TEST(PickledFileTest, RecalledTextsAreNotEndless) {
  std::string list = "(";
  for (int i = 0; i < 32; ++i) {
    list += std::string("h\0", 2);
  }
  const std::string code = "\x80\x02" + pickled_text(std::string(256, 'x')) +
                           std::string("q\0", 2) + "0" + "ctorch._tensor\n_rebuild_from_type_v2\n" +
                           pickled_object("Int8Tensor", pickled_text("note") + list + "t") +
                           "Rq\x01" + "0}(";
  const auto with_tensors = [&](int count) {
    std::string all = code;
    for (int i = 0; i < count; ++i) {
      all += pickled_text("tensor" + std::to_string(i)) + "h\x01";
    }
    return all + "u.";
  };
  EXPECT_EQ(read_code(with_tensors(1)).metadata.size(), 1U);
  EXPECT_THAT(error_message<WeightsError>([&] { read_code(with_tensors(1000)); }),
              AllOf(HasSubstr("data.pkl: "), HasSubstr("far longer than itself"),
                    HasSubstr("the file is damaged")));
}

/// Whatever is cut or changed: an error or tensors, never another access. Sanitizers watch.
TEST(PickledFileTest, DamagedFilesAreErrorsOrTensors) {
  const TemporaryFolder folder;
  const std::string whole = bytes_of(saved("views"));
  int refused = 0;
  const auto read = [&](const std::string& bytes) {
    try {
      const PickledFile file(folder.write("damaged.bin", bytes));
      for (const TensorEntry& entry : file.tensors()) {
        volatile std::byte last{};
        for (const std::byte one : entry.bytes) {
          last = one;
        }
        (void)last;
      }
    } catch (const WeightsError&) {
      ++refused;
    }
  };
  for (size_t size = 0; size < whole.size(); size += 7) {
    read(whole.substr(0, size));
  }
  EXPECT_GT(refused, static_cast<int>(whole.size() / 7)) << "the directory lies at the end";
  uint32_t random = 1;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    for (int change = 0; change < 3; ++change) {
      random = random * 1664525U + 1013904223U;
      bytes[(random >> 8) % bytes.size()] = static_cast<char>(random >> 24);
    }
    read(bytes);
  }
}

}  // namespace
}  // namespace specdec
