#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "experiments/config/new_folder.h"

namespace specdec {

/// What holds the state of a training that was interrupted.
inline constexpr const char* kTrainingState = "training.state";
/// The head as it was at the newest evaluation, for whoever cannot wait; gone when training ends.
inline constexpr const char* kSoFar = "so_far";
/// The loss curve: the first file of a training.
inline constexpr const char* kTrainingLog = "training.jsonl";

/// What is written to a folder.
enum class FolderWork { kTraining, kAnswers };

/// Why work cannot begin or go on in `out`, and what to do: it cannot be made or written, holds the
/// weights of a finished model, head or adapter, of whatever kind, or holds other files and none
/// that this work leaves. "" = nothing. Makes nothing that stays.
std::string refused_training_folder(const std::filesystem::path& out, FolderWork work);
/// Makes the folder that is written to, and locks it. Throws Error, before any work, for what
/// refused_training_folder refuses, and when another process is writing to it.
void make_training_folder(NewFolder& out, FolderWork work);
/// Leaves the file by which a folder is known as that of a training, though it is killed before it
/// stores a state. Throws Error where it cannot be written.
void begin_training(const std::filesystem::path& out);
/// The file of `out` that makes it a finished model, head or adapter, or the index of its shards;
/// none where there is none. A training that was stopped while its stored weights were evaluated
/// left its state too, and resumes.
std::optional<std::string> finished_weights(const std::filesystem::path& out);

}  // namespace specdec
