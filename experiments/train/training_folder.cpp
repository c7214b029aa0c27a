#include "experiments/train/training_folder.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/error.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

/// Files of which a folder that was trained into, finished or not, holds one at least.
constexpr const char* kTrainedFiles[] = {
    kTrainingState,        "training.jsonl",        "training.json",   "config.json",
    "adapter_config.json", "model.safetensors",     "mtp.safetensors", "tokenizer.json",
    "tokenizer.model",     "tokenizer_config.json", "answers.json"};
/// How names begin of what a head's training makes before all others, of a head that is evaluated,
/// and of files that are being written.
constexpr const char* kBeginnings[] = {"masses_", kSoFar, "training.state.", "tokenizer.json.",
                                       "answers.json."};

/// The longest part of a path that is there.
fs::path existing_part(const fs::path& path) {
  std::error_code code;
  fs::path part = path;
  while (!fs::exists(part, code) && part.has_relative_path()) {
    part = part.parent_path();
  }
  return part;
}

/// A folder that its permissions let be written may still lie in a file system that takes no
/// folders, so one is made, and removed.
std::error_code try_folder_in(const fs::path& folder) {
  std::string name = (folder / ".specdec.XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    return {errno, std::generic_category()};
  }
  std::error_code code;
  fs::remove(name, code);
  return code;
}

std::error_code write_error(const fs::path& out) {
  const fs::path part = existing_part(out);
  std::error_code code;
  if (!fs::is_directory(part, code)) {
    return std::make_error_code(std::errc::not_a_directory);
  }
  if (part != out) {
    return try_folder_in(part);
  }
  return ::access(out.c_str(), W_OK | X_OK) == 0 ? std::error_code()
                                                 : std::error_code(errno, std::generic_category());
}

/// A file of a folder that holds files, and none of a training; "" = none.
std::string foreign_file(const fs::path& folder) {
  std::error_code code;
  std::string foreign;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    const bool is_own = std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                                    [&](const char* begin) { return name.rfind(begin, 0) == 0; }) ||
                        std::find(std::begin(kTrainedFiles), std::end(kTrainedFiles), name) !=
                            std::end(kTrainedFiles);
    if (is_own) {
      return "";
    }
    foreign = foreign.empty() ? name : std::min(foreign, name);
  }
  return foreign;
}

}  // namespace

std::string refused_training_folder(const fs::path& out) {
  std::error_code code;
  fs::path path = fs::absolute(out, code).lexically_normal();
  path = path.has_filename() ? path : path.parent_path();
  if (const std::error_code failure = write_error(path)) {
    return fmt::format("{}: cannot be made or written: {}. Name another folder with --set out=",
                       path.string(), failure.message());
  }
  if (const std::string file = foreign_file(path); !file.empty()) {
    return fmt::format(
        "{}: this folder holds other files ('{}') and no training, so nothing is written there. "
        "Name a new or empty folder with --set out=",
        path.string(), file);
  }
  return "";
}

void make_training_folder(NewFolder& folder) {
  const fs::path& out = folder.path();
  if (const std::string why = refused_training_folder(out); !why.empty()) {
    throw Error(why);
  }
  std::error_code code;
  fs::create_directories(out, code);
  if (code) {
    throw Error(fmt::format(
        "{}: cannot be made or written: {}. Name another folder with --set out=", out.string(),
        code.message()));
  }
  folder.lock();
}

bool is_finished(const fs::path& out, const std::string& file) {
  return fs::exists(out / file) && !fs::exists(out / kTrainingState);
}

std::optional<std::string> finished_model(const fs::path& out) {
  for (const char* file : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json"}) {
    if (is_finished(out, file)) {
      return file;
    }
  }
  return std::nullopt;
}

}  // namespace specdec
