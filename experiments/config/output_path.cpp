#include "experiments/config/output_path.h"

#include <fmt/format.h>

#include <system_error>

#include "experiments/config/config_node_state.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

/// What a key names: beside the config, or beside nothing but the current folder where the command
/// line says it.
fs::path named_output(const std::string& text, const std::string& place, const fs::path& folder) {
  const fs::path path = text;
  const bool is_override = place.rfind(kOverridePlace, 0) == 0;
  if (path.is_absolute() || is_override || folder.empty()) {
    return path;
  }
  const fs::path beside = folder / path;
  return plain_path(beside.parent_path()) / beside.filename();
}

}  // namespace

std::string refused_output(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (fs::is_directory(status)) {
    return fmt::format("{} is a folder: name a file in it", path.string());
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return fmt::format("{} is a device or pipe: name a file", path.string());
  }
  const fs::path folder = path.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, failure)) {
    return fmt::format("{} lies in no folder that is there: make {}, or name another file",
                       path.string(), folder.string());
  }
  return "";
}

std::filesystem::path ConfigNode::output_path(const std::string& key) const {
  const auto text = get<std::string>(key, "");
  if (text.empty()) {
    return {};
  }
  if (text == "~" || text.rfind("~/", 0) == 0) {
    fail(key, "'~' stands for no folder in a config: write the path out");
    return {};
  }
  const fs::path path = named_output(text, state_->tree->find(key)->place, state_->folder);
  if (const std::string why = refused_output(path); !why.empty()) {
    fail(key, why);
    return {};
  }
  if (const std::string other = errors()->name_output(path, state_->path_of(key)); !other.empty()) {
    fail(key, fmt::format("{} is written for {} already: name another file", path.string(), other));
    return {};
  }
  return state_->know(key).path = path;
}

}  // namespace specdec
