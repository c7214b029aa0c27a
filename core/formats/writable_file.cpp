#include "core/formats/writable_file.h"

#include <fmt/format.h>

#include <system_error>

#include "core/error.h"
#include "core/formats/atomic_file.h"

namespace specdec {

void check_can_write(const std::filesystem::path& file) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::absolute(file, ignored);
  std::filesystem::path folder = whole.parent_path();
  while (!std::filesystem::exists(folder, ignored) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  if (folder == whole.parent_path()) {
    const AtomicFile probe(file);
    return;
  }
  try {
    const AtomicFile probe(folder / whole.filename());
  } catch (const Error&) {
    throw Error(
        fmt::format("{}: its folder does not exist and cannot be made in {}. Name another "
                    "file.",
                    file.string(), folder.string()));
  }
}

}  // namespace specdec
