#include "experiments/config/new_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "core/error.h"

namespace specdec {

namespace fs = std::filesystem;

NewFolder::NewFolder(fs::path path)
    : path_(std::move(path)), exceptions_(std::uncaught_exceptions()) {
  std::error_code code;
  path_ = fs::absolute(path_, code).lexically_normal();
  existing_ = path_;
  while (!fs::exists(existing_, code) && existing_.has_relative_path()) {
    existing_ = existing_.parent_path();
  }
  if (existing_ == path_ && !fs::is_empty(path_, code)) {
    is_kept_ = true;
  }
}

void NewFolder::lock() {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) {
    throw Error(fmt::format("{}: cannot open this folder: {}. Name another one.", path_.string(),
                            std::strerror(errno)));
  }
  // A file system that knows no locks is no reason to refuse the work.
  const bool is_taken = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  std::error_code code;
  is_kept_ = is_kept_ || is_taken || !fs::is_empty(path_, code);
  if (is_taken) {
    throw Error(fmt::format(
        "{}: another process is writing to this folder. Wait for it, or name another one.",
        path_.string()));
  }
}

NewFolder::~NewFolder() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (is_kept_ || std::uncaught_exceptions() <= exceptions_) {
    return;
  }
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, code)) {
    fs::remove_all(entry.path(), code);
  }
  for (fs::path folder = path_; folder != existing_ && fs::remove(folder, code);) {
    folder = folder.parent_path();
  }
}

}  // namespace specdec
