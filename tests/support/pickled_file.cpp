#include "tests/support/pickled_file.h"

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

template <class Number>
std::string little(Number value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string unicode(const std::string& text) {
  return "X" + little(static_cast<uint32_t>(text.size())) + text;
}

std::string integers(const std::vector<int64_t>& numbers) {
  std::string code = "(";
  for (const int64_t number : numbers) {
    code += "J" + little(static_cast<int32_t>(number));
  }
  return code + "t";
}

std::string storage_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "FloatStorage";
    case DType::kBF16:
      return "BFloat16Storage";
    case DType::kF16:
      return "HalfStorage";
    default:
      throw Error("write_pickled: another dtype than tests need");
  }
}

/// One entry of the archive, stored: its local header and data, and its entry of the directory.
struct Archive {
  std::string bytes;
  std::string directory;
  uint16_t entries = 0;

  void add(const std::string& name, const std::string& data) {
    const auto size = static_cast<uint32_t>(data.size());
    const auto offset = static_cast<uint32_t>(bytes.size());
    const std::string common = std::string("\0\0\0\0\0\0\0\0", 8) + little(uint32_t{0}) +
                               little(size) + little(size) +
                               little(static_cast<uint16_t>(name.size())) + little(uint16_t{0});
    bytes += "PK\x03\x04" + little(uint16_t{20}) + common + name + data;
    directory += "PK\x01\x02" + little(uint16_t{20}) + little(uint16_t{20}) + common +
                 std::string(10, '\0') + little(offset) + name;
    ++entries;
  }

  std::string finished() const {
    return bytes + directory + "PK\x05\x06" + std::string(4, '\0') + little(entries) +
           little(entries) + little(static_cast<uint32_t>(directory.size())) +
           little(static_cast<uint32_t>(bytes.size())) + little(uint16_t{0});
  }
};

}  // namespace

void write_pickled(const std::filesystem::path& path, std::span<const TensorToWrite> tensors) {
  Archive archive;
  std::string code =
      "\x80\x02"
      "ccollections\nOrderedDict\n)R(";
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorToWrite& tensor = tensors[i];
    std::vector<int64_t> strides(tensor.shape.size(), 1);
    for (size_t axis = strides.size(); axis-- > 1;) {
      strides[axis - 1] = strides[axis] * tensor.shape[axis];
    }
    code += unicode(tensor.name) + "ctorch._utils\n_rebuild_tensor_v2\n((" + unicode("storage") +
            "ctorch\n" + storage_of(tensor.dtype) + "\n" + unicode(fmt::format("{}", i)) +
            unicode("cpu") + "K\x01tQ" + "K" + std::string(1, '\0') + integers(tensor.shape) +
            integers(strides) +
            "\x89"
            "ccollections\nOrderedDict\n)RtR";
    archive.add(fmt::format("model/data/{}", i),
                {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
  }
  archive.add("model/data.pkl", code + "u.");
  archive.add("model/byteorder", "little");
  std::ofstream(path, std::ios::binary) << archive.finished();
}

void copy_pickled(const std::filesystem::path& file, const std::filesystem::path& path) {
  const SafetensorsFile source(file);
  std::vector<TensorToWrite> tensors;
  for (const TensorEntry& entry : source.tensors()) {
    tensors.push_back({entry.name, entry.dtype, entry.shape, entry.bytes});
  }
  write_pickled(path, tensors);
}

}  // namespace specdec
