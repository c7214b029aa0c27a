#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace specdec {

/// A file that appears whole or not at all: the bytes go to a temporary file beside it, which
/// `commit` renames. Without a commit the temporary file is removed. Where the name is a symbolic
/// link, the file that it leads to is replaced.
class AtomicFile {
 public:
  /// Throws Error when the folder does not exist or cannot be written, or the name is that of a
  /// folder, device or pipe: these would be replaced.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. Throws Error when the disk is full.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Flushes to the disk and gives the file its name.
  void commit();
  /// Commits without waiting for the disk: when the machine stops, the file may hold anything.
  void commit_unflushed();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  std::string temporary_;
  int descriptor_ = -1;
};

/// Writes a whole file through AtomicFile.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace specdec
