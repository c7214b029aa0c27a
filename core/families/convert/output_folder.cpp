#include "core/families/convert/output_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace specdec {

OutputFolder::OutputFolder(std::filesystem::path path) : path_(std::move(path)) {
  std::string name = path_.string() + ".XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(fmt::format(
        "{}: cannot create: {}. Check that the folder it should lie in exists and may be written.",
        path_.string(), std::strerror(errno)));
  }
  temporary_ = name;
  // mkdtemp makes the folder private.
  std::filesystem::permissions(temporary_, std::filesystem::perms(0755));
}

OutputFolder::~OutputFolder() {
  if (!temporary_.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(temporary_, ignored);
  }
}

void OutputFolder::commit() {
  const std::filesystem::path before = temporary_.string() + ".old";
  try {
    if (std::filesystem::exists(path_)) {
      std::filesystem::rename(path_, before);
    }
    std::filesystem::rename(temporary_, path_);
  } catch (const std::filesystem::filesystem_error& error) {
    std::error_code ignored;
    if (std::filesystem::exists(before, ignored) && !std::filesystem::exists(path_, ignored)) {
      std::filesystem::rename(before, path_, ignored);
    }
    throw Error(fmt::format("{}: cannot rename the finished folder: {}.", path_.string(),
                            error.code().message()));
  }
  temporary_.clear();
  std::error_code ignored;
  std::filesystem::remove_all(before, ignored);
}

}  // namespace specdec
