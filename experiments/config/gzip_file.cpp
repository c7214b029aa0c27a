#include "experiments/config/gzip_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 18U;

struct CloseGzip {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

/// What zlib says went wrong with an open file; nullptr = nothing.
const char* gzip_failure(gzFile_s* file) {
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  if (code == Z_OK || code == Z_STREAM_END) {
    return nullptr;
  }
  return code == Z_ERRNO ? std::strerror(errno) : message;
}

}  // namespace

std::filesystem::path text_extension(const std::filesystem::path& file) {
  return file.extension() == ".gz" ? file.stem().extension() : file.extension();
}

std::string read_gzip_file(const std::filesystem::path& file, size_t max_bytes) {
  const std::unique_ptr<gzFile_s, CloseGzip> stream(gzopen(file.c_str(), "rb"));
  if (stream == nullptr) {
    throw ConfigError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  }
  std::string text;
  std::vector<char> piece(kPieceBytes);
  int count = 0;
  while ((count = gzread(stream.get(), piece.data(), static_cast<unsigned>(piece.size()))) > 0) {
    text.append(piece.data(), static_cast<size_t>(count));
    if (text.size() > max_bytes) {
      throw ConfigError(
          fmt::format("{}: its text is larger than {} MiB", file.string(), max_bytes >> 20U));
    }
  }
  if (gzdirect(stream.get()) != 0) {  // zlib hands on what is not compressed
    throw ConfigError(fmt::format("{}: is no gzip file; name it without .gz", file.string()));
  }
  if (const char* failure = gzip_failure(stream.get()); failure != nullptr) {
    throw ConfigError(
        fmt::format("{}: damaged or cut off ({}); 'gzip --test' tells. Get the file "
                    "again",
                    file.string(), failure));
  }
  return text;
}

}  // namespace specdec
