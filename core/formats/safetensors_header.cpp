#include "core/formats/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/json_text.h"
#include "core/formats/strict_json.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::array kDTypes = {DType::kF64, DType::kF32,  DType::kF16,   DType::kBF16,
                                DType::kI64, DType::kI32,  DType::kI16,   DType::kI8,
                                DType::kU8,  DType::kBool, DType::kF8E4M3};

std::optional<DType> find_dtype(std::string_view name) {
  if (name == "U32") {  // words of codes (MLX), whose bytes I32 has too
    return DType::kI32;
  }
  for (const DType dtype : kDTypes) {
    if (dtype_name(dtype) == name) {
      return dtype;
    }
  }
  return std::nullopt;
}

// A whole number that fits; JSON numbers such as 4.0 or -1 do not count.
std::optional<int64_t> whole_number(const json& value) {
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

// Reads the header of one file; every complaint names the file.
class HeaderReader {
 public:
  HeaderReader(std::string where, std::span<const std::byte> file)
      : where_(std::move(where)), file_(file) {}

  std::vector<TensorEntry> read(std::map<std::string, std::string>& metadata) {
    const json header = parse();
    std::vector<TensorEntry> tensors;
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadataKey) {
        read_metadata(value, metadata);
      } else {
        tensors.push_back(read_entry(name, value));
      }
    }
    std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
      return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
    });
    check_layout(tensors);
    return tensors;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw WeightsError(fmt::format("{}: {}", where_, what));
  }
  [[noreturn]] void fail(const std::string& tensor, const std::string& what) const {
    fail(fmt::format("tensor \"{}\": {}", tensor, what));
  }

  json parse() {
    if (file_.size() < kLengthBytes) {
      fail(fmt::format("{} bytes are too few for a safetensors file. {}", file_.size(),
                       kDamagedFile));
    }
    uint64_t length = 0;
    for (size_t i = kLengthBytes; i-- > 0;) {
      length = (length << 8) | std::to_integer<uint64_t>(file_[i]);
    }
    if (length > kMaxHeaderBytes) {
      refuse_placeholder(file_, where_);
      fail(
          fmt::format("its first 8 bytes give a header of {} bytes, more than the {} that the "
                      "format allows. Is it a safetensors file?",
                      length, kMaxHeaderBytes));
    }
    if (length > file_.size() - kLengthBytes) {
      fail(fmt::format("its header should have {} bytes, but the file has only {} in all. {}",
                       length, file_.size(), kDamagedFile));
    }
    const auto text = file_.subspan(kLengthBytes, length);
    data_ = file_.subspan(kLengthBytes + length);
    json header = parse_strict_json({reinterpret_cast<const char*>(text.data()), text.size()},
                                    where_ + " (header)");
    if (!header.is_object()) {
      fail(fmt::format("its header is a JSON {}, not an object. {}", header.type_name(),
                       kDamagedFile));
    }
    return header;
  }

  void read_metadata(const json& value, std::map<std::string, std::string>& metadata) const {
    if (value.is_null()) {
      return;
    }
    if (!value.is_object()) {
      fail("__metadata__ is not an object of strings.");
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        fail(fmt::format("__metadata__: \"{}\" is not a string.", key));
      }
      metadata.emplace(key, text.get<std::string>());
    }
  }

  TensorEntry read_entry(const std::string& name, const json& value) const {
    if (!value.is_object()) {
      fail(name, "its description is not an object.");
    }
    TensorEntry entry{.name = name, .dtype = read_dtype(name, value), .shape = {}, .bytes = {}};
    entry.shape = read_numbers(name, value, "shape");
    const auto offsets = read_numbers(name, value, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      fail(name, "data_offsets is not [begin, end].");
    }
    if (static_cast<uint64_t>(offsets[1]) > data_.size()) {
      fail(name, fmt::format("its data should end at byte {}, but the file holds only {} bytes of "
                             "data. {}",
                             offsets[1], data_.size(), kDamagedFile));
    }
    const int64_t expected = expected_bytes(entry);
    if (offsets[1] - offsets[0] != expected) {
      fail(name, fmt::format("shape [{}] of {} needs {} bytes, but data_offsets gives {}. {}",
                             fmt::join(entry.shape, ", "), dtype_name(entry.dtype), expected,
                             offsets[1] - offsets[0], kDamagedFile));
    }
    entry.bytes = data_.subspan(static_cast<size_t>(offsets[0]), static_cast<size_t>(expected));
    return entry;
  }

  DType read_dtype(const std::string& name, const json& value) const {
    const auto found = value.find("dtype");
    if (found == value.end() || !found->is_string()) {
      fail(name, "it has no \"dtype\" string.");
    }
    const auto dtype = find_dtype(found->get_ref<const std::string&>());
    if (!dtype) {
      std::vector<std::string_view> known;
      std::transform(kDTypes.begin(), kDTypes.end(), std::back_inserter(known),
                     [](DType entry) { return dtype_name(entry); });
      fail(name, fmt::format("dtype {} is not supported; known: {}.", found->dump(),
                             fmt::join(known, ", ")));
    }
    return *dtype;
  }

  std::vector<int64_t> read_numbers(const std::string& name, const json& value,
                                    const char* key) const {
    const auto found = value.find(key);
    if (found == value.end() || !found->is_array()) {
      fail(name, fmt::format("it has no \"{}\" array.", key));
    }
    std::vector<int64_t> numbers;
    for (const json& element : *found) {
      const auto number = whole_number(element);
      if (!number) {
        fail(name, fmt::format("\"{}\" holds {}, which is not a whole number from 0 to 2^63 - 1.",
                               key, json_text(element)));
      }
      numbers.push_back(*number);
    }
    return numbers;
  }

  int64_t expected_bytes(const TensorEntry& entry) const {
    int64_t bytes = dtype_bytes(entry.dtype);
    for (const int64_t size : entry.shape) {
      if (__builtin_mul_overflow(bytes, size, &bytes)) {
        fail(entry.name, fmt::format("shape [{}] is too large.", fmt::join(entry.shape, ", ")));
      }
    }
    return bytes;
  }

  void check_layout(const std::vector<TensorEntry>& tensors) const {
    const std::byte* position = data_.data();
    for (const TensorEntry& entry : tensors) {
      if (entry.bytes.data() != position) {
        fail(entry.name,
             fmt::format("its data begins at byte {}, where {} was expected: tensors "
                         "overlap or leave a hole. {}",
                         entry.bytes.data() - data_.data(), position - data_.data(), kDamagedFile));
      }
      position += entry.bytes.size();
    }
    const auto used = static_cast<size_t>(position - data_.data());
    if (used != data_.size()) {
      fail(fmt::format("{} bytes after the last tensor belong to none. {}", data_.size() - used,
                       kDamagedFile));
    }
  }

  std::string where_;
  std::span<const std::byte> file_;
  std::span<const std::byte> data_;
};

}  // namespace

std::vector<TensorEntry> parse_safetensors(std::span<const std::byte> file,
                                           const std::string& where,
                                           std::map<std::string, std::string>& metadata) {
  return HeaderReader(where, file).read(metadata);
}

}  // namespace specdec
