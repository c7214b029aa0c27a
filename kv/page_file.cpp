#include "kv/page_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/formats/direct_file.h"

namespace specdec {
namespace {

/// An open file without a name; -1 with errno.
int open_unnamed(const std::filesystem::path& folder) {
#ifdef O_TMPFILE
  const int unnamed = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (unnamed >= 0) {
    return unnamed;
  }
#endif
  std::string name = (folder / "specdec-pages-XXXXXX").string();
  const int named = ::mkstemp(name.data());
  if (named >= 0) {
    ::unlink(name.c_str());
  }
  return named;
}

/// Gives a file room on its disk; 0, or the number of an error.
int take_room(int descriptor, int64_t bytes) {
#ifdef __APPLE__
  fstore_t room{};
  room.fst_flags = F_ALLOCATEALL;
  room.fst_posmode = F_PEOFPOSMODE;
  room.fst_length = bytes;
  const bool fails =
      ::fcntl(descriptor, F_PREALLOCATE, &room) == -1 || ::ftruncate(descriptor, bytes) != 0;
  return fails ? errno : 0;
#else
  return ::posix_fallocate(descriptor, 0, bytes);
#endif
}

std::string no_room(const std::filesystem::path& folder, int64_t bytes, int code) {
  const bool is_full = code == ENOSPC || code == EFBIG || code == EDQUOT;
  return fmt::format(
      "{}: {} {} MiB of pages of a cache: {}. Lower the cache's megabytes, or name another folder "
      "with its disk.",
      folder.string(), is_full ? "the disk has no room for" : "no file can be given",
      (bytes + (1 << 20) - 1) >> 20U, std::strerror(code));
}

class TemporaryPageFile final : public PageFile {
 public:
  TemporaryPageFile(const std::filesystem::path& folder, int descriptor)
      : file_(folder / "(pages of a cache)", descriptor,
              "Check the disk, or name another folder with the cache's disk.") {}

  void read(int64_t offset, std::span<std::byte> memory) override { file_.read(offset, memory); }
  void write(int64_t offset, std::span<const std::byte> memory) override {
    file_.write(offset, memory);
  }

 private:
  DirectFile file_;
};

}  // namespace

std::unique_ptr<PageFile> temporary_page_file(const std::filesystem::path& folder, int64_t bytes) {
  const std::filesystem::path place =
      folder.empty() ? std::filesystem::temp_directory_path() : folder;
  const int descriptor = open_unnamed(place);
  if (descriptor < 0) {
    throw Error(
        fmt::format("{}: no file can be made here for the pages of a cache: {}. Name "
                    "another folder with the cache's disk.",
                    place.string(), std::strerror(errno)));
  }
  // Before the file is direct: where the file system reserves no room, the C library writes single
  // bytes.
  if (const int code = take_room(descriptor, bytes); code != 0) {
    ::close(descriptor);
    throw Error(no_room(place, bytes, code));
  }
  return std::make_unique<TemporaryPageFile>(place, descriptor);
}

}  // namespace specdec
