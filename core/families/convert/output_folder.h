#pragma once
#include <filesystem>
#include <string>

namespace specdec {

/// A folder that appears whole or not at all: files go to a temporary folder beside it, which
/// `commit` renames. Without a commit the temporary folder is removed.
class OutputFolder {
 public:
  /// Throws Error where the folder above does not exist or cannot be written.
  explicit OutputFolder(std::filesystem::path path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  /// Gives the folder its name; one that has it is removed then.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

}  // namespace specdec
