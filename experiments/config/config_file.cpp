#include "experiments/config/config_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "experiments/config/gzip_file.h"

namespace specdec {
namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20U;

std::string read_plain_file(const std::filesystem::path& file, size_t size) {
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  if (stream) {
    text.resize(size);
    stream.read(text.data(), static_cast<std::streamsize>(size));
    text.resize(static_cast<size_t>(stream.gcount()));
  }
  if (!stream && !stream.eof()) {
    throw ConfigError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  }
  return text;
}

/// Where an override was written, and its "a.b=value".
struct OverrideParts {
  std::string place;
  std::string setting;
};

OverrideParts parts_of(const std::string& text) {
  const size_t gap = text.find(' ');
  const bool is_option = text.rfind(kOverridePlace, 0) == 0 && gap != std::string::npos;
  if (!is_option) {
    return {"--set " + text, text};
  }
  const std::string setting = text.substr(gap + 1);
  const size_t equals = setting.find('=');
  return {text.substr(0, gap + 1) + setting.substr(equals == std::string::npos ? 0 : equals + 1),
          setting};
}

}  // namespace

std::shared_ptr<YamlTree> load_config(const std::filesystem::path& file,
                                      const std::vector<std::string>& overrides,
                                      ConfigErrors& errors) {
  auto root = parse_yaml(read_text_file(file, kMaxConfigBytes), file.string(), true);
  if (root->kind != YamlTree::Kind::kMap) {
    throw ConfigError(root->place + ": a config is a map of keys, such as 'name: my_experiment'");
  }
  for (const auto& text : overrides) {
    apply_override(*root, text, errors);
  }
  return root;
}

void apply_override(YamlTree& root, const std::string& text, ConfigErrors& errors) {
  const auto [place, setting] = parts_of(text);
  const size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0) {
    errors.add(place, "", "expected key=value, such as --set sampling.temperature=0.8");
    return;
  }
  try {
    auto value = parse_yaml(setting.substr(equals + 1), place, false);
    if (equals + 1 == setting.size()) {
      value->kind = YamlTree::Kind::kNull;
    }
    set_at_path(root, setting.substr(0, equals), std::move(value), place);
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    errors.add(place, "", message.substr(std::min(message.size(), place.size() + 2)));
  }
}

std::string read_text_file(const std::filesystem::path& file, size_t max_bytes) {
  std::error_code failure;
  const auto status = std::filesystem::status(file, failure);
  if (!std::filesystem::exists(status)) {
    throw ConfigError(fmt::format("{}: no such file", file.string()));
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw ConfigError(fmt::format("{}: not a file{}", file.string(),
                                  std::filesystem::is_directory(status) ? ", but a folder" : ""));
  }
  const auto size = std::filesystem::file_size(file, failure);
  if (!failure && size > max_bytes) {
    throw ConfigError(fmt::format("{}: larger than {} MiB", file.string(), max_bytes >> 20U));
  }
  const std::string text = file.extension() == ".gz"
                               ? read_gzip_file(file, max_bytes)
                               : read_plain_file(file, static_cast<size_t>(size));
  return text.rfind("\xEF\xBB\xBF", 0) == 0 ? text.substr(3) : text;
}

void write_text_file(const std::filesystem::path& file, std::string_view text) {
  write_file(file, text);
}

}  // namespace specdec
