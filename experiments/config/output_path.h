#pragma once
#include <filesystem>
#include <string>

namespace specdec {

/// Why a path cannot name a file that is to be written, and what to do: it is a folder or a device,
/// or the folder that it lies in is not there. "" = nothing.
std::string refused_output(const std::filesystem::path& path);

}  // namespace specdec
