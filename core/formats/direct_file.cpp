#include "core/formats/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

#ifdef O_DIRECT
constexpr int kDirect = O_DIRECT;
#else
constexpr int kDirect = 0;
#endif

}  // namespace

DirectFile::DirectFile(std::filesystem::path path, int descriptor, std::string advice)
    : path_(std::move(path)), descriptor_(descriptor), advice_(std::move(advice)) {
  if (kDirect != 0) {
    (void)::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) | kDirect);
  }
}

DirectFile::~DirectFile() { ::close(descriptor_); }

bool DirectFile::is_direct() const { return (::fcntl(descriptor_, F_GETFL) & kDirect) != 0; }

/// Goes back to buffered access, for file systems that only open files so. True also where another
/// thread was first.
bool DirectFile::give_up_direct() {
  return ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) & ~kDirect) == 0;
}

void DirectFile::drop_pages([[maybe_unused]] int64_t offset, [[maybe_unused]] size_t bytes) const {
#ifdef POSIX_FADV_DONTNEED
  if (!is_direct()) {
    (void)::posix_fadvise(descriptor_, offset, static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
  }
#endif
}

template <class Memory, class Call>
void DirectFile::transfer(int64_t offset, Memory memory, const Words& words, const Call& call) {
  const int64_t begin = offset;
  while (!memory.empty()) {
    const bool was_direct = is_direct();
    const ssize_t count = call(memory.data(), memory.size(), offset);
    if (count < 0 && (errno == EINTR || (errno == EINVAL && was_direct && give_up_direct()))) {
      continue;
    }
    if (count <= 0) {
      throw Error(fmt::format("{}: cannot be {} at byte {}: {}. {}", path_.string(), words.done,
                              offset, count < 0 ? std::strerror(errno) : words.nothing, advice_));
    }
    memory = memory.subspan(static_cast<size_t>(count));
    offset += count;
  }
  drop_pages(begin, static_cast<size_t>(offset - begin));
}

void DirectFile::read(int64_t offset, std::span<std::byte> memory) {
  transfer(offset, memory, {"read", "it ends there"},
           [this](std::byte* to, size_t bytes, int64_t at) {
             return ::pread(descriptor_, to, bytes, at);
           });
}

void DirectFile::write(int64_t offset, std::span<const std::byte> memory) {
  transfer(offset, memory, {"written", "no bytes are taken"},
           [this](const std::byte* from, size_t bytes, int64_t at) {
             return ::pwrite(descriptor_, from, bytes, at);
           });
}

}  // namespace specdec
