#include "core/formats/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/formats/safetensors_header.h"

namespace specdec {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<DTypeInfo, 10> kDTypeInfos = {{{DType::kF64, "F64", 8},
                                                    {DType::kF32, "F32", 4},
                                                    {DType::kF16, "F16", 2},
                                                    {DType::kBF16, "BF16", 2},
                                                    {DType::kI64, "I64", 8},
                                                    {DType::kI32, "I32", 4},
                                                    {DType::kI16, "I16", 2},
                                                    {DType::kI8, "I8", 1},
                                                    {DType::kU8, "U8", 1},
                                                    {DType::kBool, "BOOL", 1}}};

const DTypeInfo& info(DType dtype) { return kDTypeInfos.at(static_cast<size_t>(dtype)); }

// A file mapped for reading.
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
  if (bytes > 0) {
    data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  }
  const int code = errno;
  ::close(descriptor);
  if (!regular) {
    throw WeightsError(fmt::format("{}: not a regular file.", where));
  }
  if (bytes == 0) {
    throw WeightsError(fmt::format("{}: the file is empty. {}", where, kDamagedFile));
  }
  if (data == MAP_FAILED) {
    throw WeightsError(fmt::format("{}: cannot map into memory: {}.", where, std::strerror(code)));
  }
  return {data, bytes};
}

}  // namespace

int64_t dtype_bytes(DType dtype) { return info(dtype).bytes; }
std::string_view dtype_name(DType dtype) { return info(dtype).name; }

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const Mapping mapping = map_file(path);
  mapping_ = mapping.data;
  mapping_bytes_ = mapping.bytes;
  try {
    const std::span file(static_cast<const std::byte*>(mapping_), mapping_bytes_);
    tensors_ = parse_safetensors(file, path.string(), metadata_);
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

void SafetensorsFile::release(const TensorEntry& entry, size_t begin, size_t size) const {
  SPECDEC_CHECK(holds(entry), "{} is not a tensor of {}", entry.name, path_.string());
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  begin = std::min(begin, entry.bytes.size());
  size = std::min(size, entry.bytes.size() - begin);
  const auto start = reinterpret_cast<uintptr_t>(entry.bytes.data()) + begin;
  // Pages shared with a neighbour stay: it may still be wanted.
  const uintptr_t first = (start + page - 1) / page * page;
  const uintptr_t last = (start + size) / page * page;
  if (first < last) {
    ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }
}

}  // namespace specdec
