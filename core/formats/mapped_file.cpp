#include "core/formats/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/formats/file_content.h"

namespace specdec {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const std::string where = path.string();
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    throw WeightsError(fmt::format("{}: cannot open: {}.", where, open_failure(path, errno)));
  }
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  size_ = regular ? static_cast<size_t>(status.st_size) : 0;
  void* data = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int code = errno;
  ::close(descriptor);
  if (!regular) {
    throw WeightsError(fmt::format("{}: not a regular file.", where));
  }
  if (data == MAP_FAILED) {
    throw WeightsError(fmt::format("{}: cannot map into memory: {}.", where, std::strerror(code)));
  }
  data_ = data;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void release_pages(std::span<const std::byte> part) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (start + page - 1) / page * page;
  const uintptr_t last = (start + part.size()) / page * page;
  if (first < last) {
    ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  }
}

}  // namespace specdec
