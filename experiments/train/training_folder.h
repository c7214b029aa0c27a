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

/// Why nothing can be trained into `out`, and what to do: it cannot be made or written, or holds
/// other files and no training. "" = nothing. Makes nothing that stays.
std::string refused_training_folder(const std::filesystem::path& out);
/// Makes the folder that a training writes to, and locks it. Throws Error, before any work, for
/// what refused_training_folder refuses, and when another process is writing to it.
void make_training_folder(NewFolder& out);
/// True when `out` holds the weights `file` of a training that ended. One that was stopped while
/// its stored weights were evaluated left its state too, and resumes.
bool is_finished(const std::filesystem::path& out, const std::string& file);
/// The file of `out` that makes it a model, or shards' index: of a training that ended, or a
/// checkpoint of another program; none where there is none.
std::optional<std::string> finished_model(const std::filesystem::path& out);

}  // namespace specdec
