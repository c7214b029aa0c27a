#pragma once
#include <filesystem>
#include <span>

#include "core/formats/safetensors.h"

namespace specdec {

/// Writes tensors as torch.save writes a state dict: a zip archive of a pickle and a file a tensor.
void write_pickled(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

/// Writes the tensors of a folder's model.safetensors, or of another file of it, to `path` so.
void copy_pickled(const std::filesystem::path& file, const std::filesystem::path& path);

}  // namespace specdec
