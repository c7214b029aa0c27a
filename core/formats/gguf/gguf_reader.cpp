#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/utf8.h"

namespace specdec {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr const char* kDamaged = "The file is damaged or was not downloaded whole.";
constexpr int64_t kLargestDimension = int64_t{1} << 40;

/// The types of metadata values, by their numbers in the file.
enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kArray,
  kU64,
  kI64,
  kF64
};

/// Element types of tensors, by their numbers in the file.
struct TensorType {
  uint32_t number;
  DType dtype;
};
constexpr TensorType kTensorTypes[] = {
    {0, DType::kF32},     {1, DType::kF16},    {2, DType::kQ40},     {3, DType::kQ41},
    {6, DType::kQ50},     {7, DType::kQ51},    {8, DType::kQ80},     {10, DType::kQ2K},
    {11, DType::kQ3K},    {12, DType::kQ4K},   {13, DType::kQ5K},    {14, DType::kQ6K},
    {16, DType::kIq2Xxs}, {17, DType::kIq2Xs}, {18, DType::kIq3Xxs}, {19, DType::kIq1S},
    {20, DType::kIq4Nl},  {21, DType::kIq3S},  {22, DType::kIq2S},   {23, DType::kIq4Xs},
    {24, DType::kI8},     {25, DType::kI16},   {26, DType::kI32},    {27, DType::kI64},
    {28, DType::kF64},    {29, DType::kIq1M},  {30, DType::kBF16},   {34, DType::kTq1},
    {35, DType::kTq2},    {39, DType::kMxfp4}, {40, DType::kNvfp4}};

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> file, const std::string& where)
      : file_(file), where_(where), content_{.metadata = GgufMetadata(where), .tensors = {}} {}

  GgufContent parse() {
    read_header();
    // The least that a value and a tensor's description take: counts beyond these are nonsense.
    check_count(values_, 13, "metadata values");
    check_count(tensors_, 24, "tensors");
    for (uint64_t i = 0; i < values_; ++i) {
      read_value(i);
    }
    read_alignment();
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i < tensors_; ++i) {
      offsets.push_back(read_tensor(i));
    }
    place(offsets);
    return std::move(content_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw WeightsError(fmt::format("{}: {}", where_, what));
  }

  /// `what` is being read.
  const std::byte* take(size_t bytes, const std::string& what) {
    if (bytes > file_.size() - position_) {
      fail(fmt::format("it ends within {}. {}", what, kDamaged));
    }
    const std::byte* start = file_.data() + position_;
    position_ += bytes;
    return start;
  }

  template <class T>
  T read(const std::string& what) {
    T value{};
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }

  void check_count(uint64_t count, uint64_t least, const std::string& what) const {
    if (count > (file_.size() - position_) / least) {
      fail(fmt::format("it says that it holds {} {}, more than fit into its {} bytes. {}", count,
                       what, file_.size(), kDamaged));
    }
  }

  std::string read_text(const std::string& what) {
    const auto size = read<uint64_t>(what);
    check_count(size, 1, "bytes of " + what);
    const auto* text = reinterpret_cast<const char*>(take(size, what));
    return {text, size};
  }

  void read_header() {
    const size_t begins = std::min(file_.size(), kMagic.size());
    if (begins < kMagic.size() || std::memcmp(file_.data(), kMagic.data(), kMagic.size()) != 0) {
      fail("it does not begin with \"GGUF\", so it is no GGUF file.");
    }
    position_ = kMagic.size();
    const auto version = read<uint32_t>("the header");
    if (version != 2 && version != 3) {
      const bool swapped = (version & 0xFFFFU) == 0 && version != 0;
      fail(fmt::format("GGUF version {} is not supported; known: 2, 3{}.", version,
                       swapped ? ", little-endian" : ""));
    }
    tensors_ = read<uint64_t>("the header");
    values_ = read<uint64_t>("the header");
  }

  void read_value(uint64_t index) {
    const std::string key = read_text(fmt::format("the key of metadata value {}", index));
    if (key.empty() || !is_utf8(key)) {
      fail(fmt::format("metadata value {} has no key that is UTF-8. {}", index, kDamaged));
    }
    if (content_.metadata.has(key)) {
      content_.metadata.fail(key, "comes twice");
    }
    const auto type = read<uint32_t>(key);
    content_.metadata.add(key, type == static_cast<uint32_t>(ValueType::kArray)
                                   ? read_array(key)
                                   : read_scalar(key, type));
  }

  [[noreturn]] void fail_type(const std::string& key, uint32_t type) const {
    fail(fmt::format("'{}' has the unknown type {}. {}", key, type, kDamaged));
  }

  GgufValue read_scalar(const std::string& key, uint32_t type) {
    switch (static_cast<ValueType>(type)) {
      case ValueType::kF32:
        return static_cast<double>(read<float>(key));
      case ValueType::kF64:
        return read<double>(key);
      case ValueType::kBool:
        return read_boolean(key);
      case ValueType::kText:
        return read_text(key);
      default:
        return read_integer(key, type);
    }
  }

  bool read_boolean(const std::string& key) { return read<uint8_t>(key) != 0; }

  int64_t read_integer(const std::string& key, uint32_t type) {
    switch (static_cast<ValueType>(type)) {
      case ValueType::kU8:
        return read<uint8_t>(key);
      case ValueType::kI8:
        return read<int8_t>(key);
      case ValueType::kU16:
        return read<uint16_t>(key);
      case ValueType::kI16:
        return read<int16_t>(key);
      case ValueType::kU32:
        return read<uint32_t>(key);
      case ValueType::kI32:
        return read<int32_t>(key);
      case ValueType::kI64:
        return read<int64_t>(key);
      case ValueType::kBool:
        return read_boolean(key) ? 1 : 0;
      case ValueType::kU64: {
        const auto value = read<uint64_t>(key);
        if (value > static_cast<uint64_t>(INT64_MAX)) {
          content_.metadata.fail(key, fmt::format("is out of range: {}", value));
        }
        return static_cast<int64_t>(value);
      }
      default:
        fail_type(key, type);
    }
  }

  GgufValue read_array(const std::string& key) {
    const auto type = read<uint32_t>(key);
    const auto count = read<uint64_t>(key);
    check_count(count, type == static_cast<uint32_t>(ValueType::kText) ? 8 : 1,
                fmt::format("entries of '{}'", key));
    switch (static_cast<ValueType>(type)) {
      case ValueType::kText:
        return read_list<std::string>(count, [&] { return read_text(key); });
      case ValueType::kF32:
        return read_list<float>(count, [&] { return read<float>(key); });
      case ValueType::kF64:
        return read_list<float>(count, [&] { return static_cast<float>(read<double>(key)); });
      case ValueType::kArray:
        content_.metadata.fail(key, "is a list of lists, which is not supported");
      default:
        return read_list<int64_t>(count, [&] { return read_integer(key, type); });
    }
  }

  template <class T, class Read>
  static std::vector<T> read_list(uint64_t count, const Read& read) {
    std::vector<T> list;
    for (uint64_t i = 0; i < count; ++i) {
      list.push_back(read());
    }
    return list;
  }

  void read_alignment() {
    const int64_t alignment = content_.metadata.integer("general.alignment", 32);
    if (alignment <= 0 || alignment > (int64_t{1} << 20) ||
        !std::has_single_bit(static_cast<uint64_t>(alignment))) {
      content_.metadata.fail("general.alignment",
                             fmt::format("is {}, not a power of two", alignment));
    }
    alignment_ = static_cast<uint64_t>(alignment);
  }

  /// Describes the next tensor; returns its offset.
  uint64_t read_tensor(uint64_t index) {
    TensorEntry entry;
    entry.name = read_text(fmt::format("the name of tensor {}", index));
    if (entry.name.empty() || !is_utf8(entry.name) || !names_.insert(entry.name).second) {
      fail(fmt::format("tensor {}: its name \"{}\" is empty, not UTF-8, or comes twice. {}", index,
                       is_utf8(entry.name) ? entry.name : "?", kDamaged));
    }
    const std::string what = fmt::format("the description of tensor '{}'", entry.name);
    const auto dimensions = read<uint32_t>(what);
    if (dimensions > 4) {
      fail(fmt::format("tensor '{}' has {} dimensions; at most 4 are supported. {}", entry.name,
                       dimensions, kDamaged));
    }
    entry.shape.resize(dimensions);
    for (uint32_t i = 0; i < dimensions; ++i) {  // the file begins with the innermost
      const auto size = read<uint64_t>(what);
      if (size == 0 || size > static_cast<uint64_t>(kLargestDimension)) {
        fail(fmt::format("tensor '{}' has a dimension of {}. {}", entry.name, size, kDamaged));
      }
      entry.shape[dimensions - 1 - i] = static_cast<int64_t>(size);
    }
    entry.dtype = tensor_type(entry.name, read<uint32_t>(what));
    const auto offset = read<uint64_t>(what);
    content_.tensors.push_back(std::move(entry));
    return offset;
  }

  DType tensor_type(const std::string& name, uint32_t number) const {
    for (const TensorType& known : kTensorTypes) {
      if (known.number == number) {
        return known.dtype;
      }
    }
    std::string known;
    for (const TensorType& type : kTensorTypes) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", dtype_name(type.dtype));
    }
    fail(
        fmt::format("tensor '{}' has the type {}, which is not supported; known: {}. Convert the "
                    "file with llama-quantize to one of these.",
                    name, number, known));
  }

  /// Points the tensors to their bytes.
  void place(const std::vector<uint64_t>& offsets) {
    const uint64_t begin = (position_ + alignment_ - 1) / alignment_ * alignment_;
    for (size_t i = 0; i < offsets.size(); ++i) {
      TensorEntry& entry = content_.tensors[i];
      const uint64_t bytes = tensor_bytes(entry);
      const uint64_t room = begin <= file_.size() ? file_.size() - begin : 0;
      if (offsets[i] % alignment_ != 0) {
        fail(fmt::format("tensor '{}' lies at offset {}, which is not aligned to {}. {}",
                         entry.name, offsets[i], alignment_, kDamaged));
      }
      if (offsets[i] > room || bytes > room - offsets[i]) {
        fail(fmt::format("tensor '{}' ({} bytes at offset {}) lies beyond the end of the file. {}",
                         entry.name, bytes == UINT64_MAX ? "2^64 or more" : std::to_string(bytes),
                         offsets[i], kDamaged));
      }
      entry.bytes = file_.subspan(begin + offsets[i], bytes);
    }
    check_layout(begin);
  }

  /// Tensors follow one another, each aligned, up to the end of the file: where one is expected
  /// elsewhere, a type or a size is wrong, and where bytes are left over, the number of tensors.
  void check_layout(uint64_t begin) const {
    std::vector<const TensorEntry*> sorted;
    for (const TensorEntry& entry : content_.tensors) {
      sorted.push_back(&entry);
    }
    std::sort(sorted.begin(), sorted.end(), [](const TensorEntry* a, const TensorEntry* b) {
      return a->bytes.data() < b->bytes.data();
    });
    uint64_t expected = 0;
    for (size_t i = 0; i < sorted.size(); ++i) {
      const TensorEntry& entry = *sorted[i];
      const auto offset = static_cast<uint64_t>(entry.bytes.data() - file_.data()) - begin;
      if (offset < expected) {
        fail(fmt::format("tensors '{}' and '{}' overlap. {}", sorted[i - 1]->name, entry.name,
                         kDamaged));
      }
      if (offset > expected) {
        fail(fmt::format(
            "tensor '{}' lies at offset {}, where {} was expected: the type or size "
            "of {} is wrong. {}",
            entry.name, offset, expected,
            i == 0 ? "a tensor" : fmt::format("tensor '{}'", sorted[i - 1]->name), kDamaged));
      }
      expected = (offset + entry.bytes.size() + alignment_ - 1) / alignment_ * alignment_;
    }
    if (file_.size() > begin + expected) {
      fail(fmt::format("{} bytes after the last of its {} tensors belong to none. {}",
                       file_.size() - begin - expected, sorted.size(), kDamaged));
    }
  }

  /// What the shape needs; UINT64_MAX for 2^64 bytes and more.
  uint64_t tensor_bytes(const TensorEntry& entry) const {
    const int64_t block = block_values(entry.dtype);
    const int64_t row = entry.shape.empty() ? 1 : entry.shape.back();
    if (row % block != 0) {
      fail(fmt::format("tensor '{}' has rows of {} values, which are not whole blocks of {} ({}).",
                       entry.name, row, block, dtype_name(entry.dtype)));
    }
    auto bytes =
        static_cast<uint64_t>(row / block) * static_cast<uint64_t>(dtype_bytes(entry.dtype));
    for (size_t i = 0; i + 1 < entry.shape.size(); ++i) {
      const auto size = static_cast<uint64_t>(entry.shape[i]);
      bytes = bytes > UINT64_MAX / size ? UINT64_MAX : bytes * size;
    }
    return bytes;
  }

  std::span<const std::byte> file_;
  const std::string& where_;
  size_t position_ = 0;
  uint64_t tensors_ = 0, values_ = 0, alignment_ = 32;
  std::set<std::string> names_;
  GgufContent content_;
};

}  // namespace

GgufContent parse_gguf(std::span<const std::byte> file, const std::string& where) {
  return GgufParser(file, where).parse();
}

}  // namespace specdec
