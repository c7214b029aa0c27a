#include "experiments/cli/replaced_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "core/error.h"
#include "core/formats/safetensors.h"

namespace specdec {

namespace fs = std::filesystem;

void keep_other_file(const std::string& flag, const fs::path& file, const std::string& what,
                     const std::function<bool()>& is_own) {
  std::error_code unknown;
  const bool holds_something =
      fs::is_regular_file(file, unknown) && !fs::is_empty(file, unknown) && !unknown;
  if (holds_something && !is_own()) {
    throw ConfigError(
        fmt::format("{}: {} is there and holds no {}, so it is not overwritten: name another file",
                    flag, file.string(), what));
  }
}

bool begins_with(const fs::path& file, std::string_view begin) {
  std::string bytes(begin.size(), '\0');
  std::ifstream(file, std::ios::binary).read(bytes.data(), std::ssize(bytes));
  return bytes == begin;
}

bool holds_tensor(const fs::path& file, const std::string& tensor) {
  try {
    const SafetensorsFile stored(file);
    const auto& all = stored.tensors();
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& each) { return each.name == tensor; });
  } catch (const Error&) {
    return false;
  }
}

}  // namespace specdec
