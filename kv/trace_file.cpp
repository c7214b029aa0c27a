#include "kv/trace_file.h"

#include <cerrno>
#include <system_error>

#include "core/error.h"

namespace specdec {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

TraceFile::TraceFile(const std::filesystem::path& path) : path_(path), file_(nullptr, std::fclose) {
  std::error_code ignored;  // the file says what is wrong with its folder
  std::filesystem::create_directories(path.parent_path(), ignored);
  for (int part = 2; file_ == nullptr; ++part) {
    file_.reset(std::fopen(path_.c_str(), "wx"));
    if (file_ != nullptr) {
      return;
    }
    if (errno != EEXIST) {
      throw Error(
          fmt::format("{}: the trace cannot be written: {}", path_.string(), reason(errno)));
    }
    path_.replace_filename(
        fmt::format("{}.{}{}", path.stem().string(), part, path.extension().string()));
  }
}

void TraceFile::write(const char* name, const std::string& fields) {
  if (error_ != 0) {
    return;
  }
  const std::string line =
      fmt::format(R"({{"event":"{}","seconds":{:.6f},{}}})", name, stopwatch_.seconds(), fields) +
      '\n';
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0) {
    error_ = errno;
  }
}

void TraceFile::check() const {
  if (error_ != 0) {
    throw Error(fmt::format(
        "{}: the trace cannot be written on: {}. Make room on the disk, or leave out the cache's "
        "'events'",
        path_.string(), reason(error_)));
  }
}

}  // namespace specdec
