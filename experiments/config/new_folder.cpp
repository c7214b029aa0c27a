#include "experiments/config/new_folder.h"

#include <exception>
#include <utility>

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

NewFolder::~NewFolder() {
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
