#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace specdec {

/// The files of a zip archive in memory, by their paths in it. Only archives whose files are stored
/// as they are, as PyTorch writes them: others, and damaged ones, are a WeightsError that names
/// `where`. Archives above 4 GiB (zip64) are read too.
std::map<std::string, std::span<const std::byte>> read_zip(std::span<const std::byte> archive,
                                                           const std::string& where);

}  // namespace specdec
