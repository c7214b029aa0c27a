#include "core/formats/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

/// Where the last of a chain of symbolic links leads.
fs::path behind_links(fs::path path) {
  constexpr int kLongestChain = 40;
  std::error_code code;
  for (int i = 0; i < kLongestChain && fs::is_symlink(path, code); ++i) {
    path = path.parent_path() / fs::read_symlink(path, code);
  }
  return path;
}

void require_replaceable(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  const bool circular = fs::is_symlink(path, code);
  if (circular || (fs::exists(status) && !fs::is_regular_file(status))) {
    throw Error(fmt::format("{}: is {}, which is not overwritten. Name a file.", path.string(),
                            circular                   ? "a link that leads to itself"
                            : fs::is_directory(status) ? "a folder"
                                                       : "a device or pipe"));
  }
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(behind_links(std::move(path))), temporary_(path_.string() + ".XXXXXX") {
  require_replaceable(path_);
  descriptor_ = ::mkstemp(temporary_.data());
  if (descriptor_ < 0) {
    fail("cannot create");
  }
  ::fchmod(descriptor_, 0644);  // mkstemp makes the file private
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::fail(const char* what) const {
  const int code = errno;
  const std::string parent = path_.has_parent_path() ? path_.parent_path().string() : ".";
  throw Error(
      fmt::format("{}: {}: {}. Check that the folder {} exists, may be written and has "
                  "space left.",
                  path_.string(), what, std::strerror(code), parent));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  SPECDEC_CHECK(descriptor_ >= 0, "{}: written after commit", path_.string());
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      fail("cannot write");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  SPECDEC_CHECK(descriptor_ >= 0, "{}: committed twice", path_.string());
  if (::fsync(descriptor_) != 0) {
    fail("cannot flush");
  }
  commit_unflushed();
}

void AtomicFile::commit_unflushed() {
  SPECDEC_CHECK(descriptor_ >= 0, "{}: committed twice", path_.string());
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail("cannot rename the finished file");
  }
  ::close(std::exchange(descriptor_, -1));
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace specdec
