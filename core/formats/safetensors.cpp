#include "core/formats/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/strict_json.h"

namespace specdec {
namespace {

using nlohmann::json;

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<DTypeInfo, 10> kDTypes = {{{DType::kF64, "F64", 8},
                                                {DType::kF32, "F32", 4},
                                                {DType::kF16, "F16", 2},
                                                {DType::kBF16, "BF16", 2},
                                                {DType::kI64, "I64", 8},
                                                {DType::kI32, "I32", 4},
                                                {DType::kI16, "I16", 2},
                                                {DType::kI8, "I8", 1},
                                                {DType::kU8, "U8", 1},
                                                {DType::kBool, "BOOL", 1}}};

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr const char* kDamaged = "The file is damaged: copy or download it again.";

const DTypeInfo& info(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)); }

std::optional<DType> find_dtype(std::string_view name) {
  for (const DTypeInfo& entry : kDTypes) {
    if (entry.name == name) {
      return entry.dtype;
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

// A file mapped for reading; nothing is closed or unmapped twice.
struct Mapping {
  void* data = nullptr;
  size_t bytes = 0;
};

Mapping map_file(const std::filesystem::path& path) {
  const std::string where = path.string();
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    throw WeightsError(fmt::format("{}: cannot open: {}.", where, std::strerror(errno)));
  }
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const auto bytes = regular ? static_cast<size_t>(status.st_size) : 0;
  void* data = MAP_FAILED;
  if (bytes >= kLengthBytes) {
    data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  }
  const int code = errno;
  ::close(descriptor);
  if (!regular) {
    throw WeightsError(fmt::format("{}: not a regular file.", where));
  }
  if (bytes < kLengthBytes) {
    throw WeightsError(
        fmt::format("{}: {} bytes are too few for a safetensors file. {}", where, bytes, kDamaged));
  }
  if (data == MAP_FAILED) {
    throw WeightsError(fmt::format("{}: cannot map into memory: {}.", where, std::strerror(code)));
  }
  return {data, bytes};
}

// Reads the header of one file; every complaint names the file.
class HeaderReader {
 public:
  HeaderReader(std::string where, std::span<const std::byte> file)
      : where_(std::move(where)), file_(file) {}

  void read(std::vector<TensorEntry>& tensors, std::map<std::string, std::string>& metadata) {
    const json header = parse();
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
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw WeightsError(fmt::format("{}: {}", where_, what));
  }
  [[noreturn]] void fail(const std::string& tensor, const std::string& what) const {
    fail(fmt::format("tensor \"{}\": {}", tensor, what));
  }

  json parse() {
    uint64_t length = 0;
    for (size_t i = kLengthBytes; i-- > 0;) {
      length = (length << 8) | std::to_integer<uint64_t>(file_[i]);
    }
    if (length > kMaxHeaderBytes) {
      fail(
          fmt::format("its first 8 bytes give a header of {} bytes, more than the {} that the "
                      "format allows. Is it a safetensors file?",
                      length, kMaxHeaderBytes));
    }
    if (length > file_.size() - kLengthBytes) {
      fail(fmt::format("its header should have {} bytes, but the file has only {} in all. {}",
                       length, file_.size(), kDamaged));
    }
    const auto text = file_.subspan(kLengthBytes, length);
    data_ = file_.subspan(kLengthBytes + length);
    json header = parse_strict_json({reinterpret_cast<const char*>(text.data()), text.size()},
                                    where_ + " (header)");
    if (!header.is_object()) {
      fail(fmt::format("its header is a JSON {}, not an object. {}", header.type_name(), kDamaged));
    }
    return header;
  }

  void read_metadata(const json& value, std::map<std::string, std::string>& metadata) const {
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
                             offsets[1], data_.size(), kDamaged));
    }
    const int64_t expected = expected_bytes(entry);
    if (offsets[1] - offsets[0] != expected) {
      fail(name, fmt::format("shape [{}] of {} needs {} bytes, but data_offsets gives {}. {}",
                             fmt::join(entry.shape, ", "), dtype_name(entry.dtype), expected,
                             offsets[1] - offsets[0], kDamaged));
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
                     [](const DTypeInfo& entry) { return entry.name; });
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
                               key, element.dump(-1, ' ', false, json::error_handler_t::replace)));
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
                         entry.bytes.data() - data_.data(), position - data_.data(), kDamaged));
      }
      position += entry.bytes.size();
    }
    const auto used = static_cast<size_t>(position - data_.data());
    if (used != data_.size()) {
      fail(fmt::format("{} bytes after the last tensor belong to none. {}", data_.size() - used,
                       kDamaged));
    }
  }

  std::string where_;
  std::span<const std::byte> file_;
  std::span<const std::byte> data_;
};

}  // namespace

int64_t dtype_bytes(DType dtype) { return info(dtype).bytes; }
std::string_view dtype_name(DType dtype) { return info(dtype).name; }

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const Mapping mapping = map_file(path);
  mapping_ = mapping.data;
  mapping_bytes_ = mapping.bytes;
  try {
    const std::span file(static_cast<const std::byte*>(mapping_), mapping_bytes_);
    HeaderReader(path.string(), file).read(tensors_, metadata_);
    by_name_.resize(tensors_.size());
    std::iota(by_name_.begin(), by_name_.end(), size_t{0});
    std::sort(by_name_.begin(), by_name_.end(),
              [this](size_t a, size_t b) { return tensors_[a].name < tensors_[b].name; });
  } catch (...) {
    ::munmap(mapping_, mapping_bytes_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) {
    ::munmap(mapping_, mapping_bytes_);
  }
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)),
      tensors_(std::move(other.tensors_)),
      by_name_(std::move(other.by_name_)),
      metadata_(std::move(other.metadata_)) {}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [this](size_t index, std::string_view wanted) { return tensors_[index].name < wanted; });
  if (found == by_name_.end() || tensors_[*found].name != name) {
    return nullptr;
  }
  return &tensors_[*found];
}

bool SafetensorsFile::holds(const TensorEntry& entry) const {
  return !tensors_.empty() && &entry >= tensors_.data() &&
         &entry < tensors_.data() + tensors_.size();
}

void SafetensorsFile::release(const TensorEntry& entry) const {
  SPECDEC_CHECK(holds(entry), "{} is not a tensor of {}", entry.name, path_.string());
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(entry.bytes.data());
  // Pages shared with a neighbour stay: it may still be wanted.
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + entry.bytes.size()) / page * page;
  if (first < last) {
    ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }
}

namespace {

// Widest elements first, so that every tensor is aligned although the format has no padding.
std::vector<const TensorToWrite*> aligned_order(std::span<const TensorToWrite> tensors) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) {
    order.push_back(&tensor);
  }
  std::stable_sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    return dtype_bytes(a->dtype) > dtype_bytes(b->dtype);
  });
  return order;
}

// The JSON header, padded with spaces so that the data begins aligned.
std::string header_text(const std::vector<const TensorToWrite*>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header[std::string(kMetadataKey)] = metadata;
  }
  std::set<std::string_view> names = {kMetadataKey};
  int64_t offset = 0;
  for (const TensorToWrite* tensor : tensors) {
    SPECDEC_CHECK(names.insert(tensor->name).second, "tensor name {} is taken", tensor->name);
    const auto bytes = std::accumulate(tensor->shape.begin(), tensor->shape.end(),
                                       dtype_bytes(tensor->dtype), std::multiplies<>());
    SPECDEC_CHECK(bytes == static_cast<int64_t>(tensor->bytes.size()),
                  "{}: shape [{}] needs {} bytes, got {}", tensor->name,
                  fmt::join(tensor->shape, ", "), bytes, tensor->bytes.size());
    header[tensor->name] = {{"dtype", dtype_name(tensor->dtype)},
                            {"shape", tensor->shape},
                            {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const auto order = aligned_order(tensors);
  const std::string header = header_text(order, metadata);
  std::array<std::byte, kLengthBytes> length{};
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length.at(i) = static_cast<std::byte>(static_cast<uint64_t>(header.size()) >> (8 * i));
  }
  AtomicFile file(path);
  file.write(length);
  file.write(header);
  for (const TensorToWrite* tensor : order) {
    file.write(tensor->bytes);
  }
  file.commit();
}

}  // namespace specdec
