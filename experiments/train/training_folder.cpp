#include "experiments/train/training_folder.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "core/error.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;

/// Files that say what a folder is for; "answers.json." begins the name of one that is being
/// written. Models, tokenizers and configs are others': they may be all that a user has there.
constexpr const char* kTrainingFiles[] = {kTrainingState, kTrainingLog};
constexpr const char* kAnswerFiles[] = {"answers.json"};
constexpr const char* kUnfinishedAnswers = "answers.json.";

constexpr const char* kWeightFiles[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json",
                                        "mtp.safetensors",   "adapter_model.safetensors",
                                        "adapter_model.bin"};

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

bool is_of(FolderWork work, const std::string& name) {
  const auto is_among = [&](const auto& files) {
    return std::find(std::begin(files), std::end(files), name) != std::end(files);
  };
  return work == FolderWork::kTraining
             ? is_among(kTrainingFiles)
             : is_among(kAnswerFiles) || name.starts_with(kUnfinishedAnswers);
}

/// A file of a folder that holds files, and none of this work; "" = none.
std::string foreign_file(const fs::path& folder, FolderWork work) {
  std::error_code code;
  std::string foreign;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const std::string name = entry.path().filename().string();
    if (is_of(work, name)) {
      return "";
    }
    foreign = foreign.empty() ? name : std::min(foreign, name);
  }
  return foreign;
}

}  // namespace

std::string refused_training_folder(const fs::path& out, FolderWork work) {
  std::error_code code;
  fs::path path = fs::absolute(out, code).lexically_normal();
  path = path.has_filename() ? path : path.parent_path();
  if (const std::error_code failure = write_error(path)) {
    return fmt::format("{}: cannot be made or written: {}. Name another folder with --set out=",
                       path.string(), failure.message());
  }
  if (const auto file = finished_weights(path)) {
    return fmt::format(
        "{}: this folder holds finished weights already ('{}'), which are not overwritten and "
        "beside which nothing is written. Name another folder with --set out=",
        path.string(), *file);
  }
  if (const std::string file = foreign_file(path, work); !file.empty()) {
    return fmt::format(
        "{}: this folder holds other files ('{}') and no {}, so nothing is written there. Name a "
        "new or empty folder with --set out=",
        path.string(), file,
        work == FolderWork::kTraining ? "training that was begun" : "recorded answers");
  }
  return "";
}

void make_training_folder(NewFolder& folder, FolderWork work) {
  const fs::path& out = folder.path();
  if (const std::string why = refused_training_folder(out, work); !why.empty()) {
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

void begin_training(const fs::path& out) {
  const fs::path file = out / kTrainingLog;
  std::ofstream stream(file, std::ios::app);
  if (!stream) {
    throw Error(fmt::format("{}: cannot be written: {}", file.string(), std::strerror(errno)));
  }
}

std::optional<std::string> finished_weights(const fs::path& out) {
  if (fs::exists(out / kTrainingState)) {
    return std::nullopt;
  }
  const auto* found = std::find_if(std::begin(kWeightFiles), std::end(kWeightFiles),
                                   [&](const char* file) { return fs::exists(out / file); });
  return found == std::end(kWeightFiles) ? std::nullopt : std::optional<std::string>(*found);
}

}  // namespace specdec
