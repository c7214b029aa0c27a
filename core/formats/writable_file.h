#pragma once
#include <filesystem>

namespace specdec {

/// Throws Error where no file of this name can be written: makes a temporary one beside it as
/// AtomicFile does, and removes it. Where folders are missing it is made in the nearest that
/// exists.
void check_can_write(const std::filesystem::path& file);

}  // namespace specdec
