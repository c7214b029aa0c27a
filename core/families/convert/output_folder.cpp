#include "core/families/convert/output_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

/// A file or folder in a model's folder that a conversion does not write; empty when there is none.
std::filesystem::path foreign_file(const std::filesystem::path& folder) {
  static const std::set<std::string> kWritten = {
      "config.json",     "generation_config.json", "model.safetensors.index.json",
      "tokenizer.json",  "tokenizer_config.json",  "special_tokens_map.json",
      "tokenizer.model", "chat_template.jinja"};
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_weights =
        name.rfind("model", 0) == 0 && entry.path().extension() == ".safetensors";
    if (entry.is_directory() || (!is_weights && !kWritten.contains(name))) {
      return entry.path();
    }
  }
  return {};
}

}  // namespace

void check_output_place(const std::filesystem::path& input, const std::filesystem::path& output,
                        bool is_file, bool replace) {
  std::error_code code;
  if (output.empty()) {
    throw ConfigError("the output's name is empty");
  }
  const auto parent = std::filesystem::absolute(output, code).lexically_normal().parent_path();
  if (!std::filesystem::is_directory(parent, code)) {
    throw ConfigError(
        fmt::format("{}: there is no folder {}; make it first", output.string(), parent.string()));
  }
  if (!std::filesystem::exists(output, code)) {
    return;
  }
  if (std::filesystem::equivalent(input, output, code)) {
    throw ConfigError(fmt::format("{}: is input and output; name another output", output.string()));
  }
  if (!replace) {
    throw ConfigError(
        fmt::format("{}: exists. Name another output, or replace it: --force", output.string()));
  }
  const bool is_folder = std::filesystem::is_directory(output, code);
  const bool replaceable = is_file ? !is_folder
                                   : is_folder && (std::filesystem::is_empty(output, code) ||
                                                   std::filesystem::exists(output / "config.json"));
  if (!replaceable) {
    throw ConfigError(fmt::format("{}: is {}, which is not replaced. Name another output",
                                  output.string(),
                                  is_file     ? "a folder"
                                  : is_folder ? "a folder without a config.json"
                                              : "a file, and only a name that ends in .gguf is "
                                                "written as one"));
  }
  if (const auto kept = is_folder ? foreign_file(output) : std::filesystem::path(); !kept.empty()) {
    throw ConfigError(
        fmt::format("{}: holds {}, which no conversion writes, and replacing the folder would "
                    "delete it. Name another output",
                    output.string(), kept.filename().string()));
  }
}

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
