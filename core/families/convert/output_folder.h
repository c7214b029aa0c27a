#pragma once
#include <filesystem>
#include <string>

namespace specdec {

/// Throws ConfigError where a conversion of `input` cannot write `output`, a file or a folder: no
/// folder above it, the input itself, what is there already (unless it is to be replaced), and what
/// no conversion has written.
void check_output_place(const std::filesystem::path& input, const std::filesystem::path& output,
                        bool is_file, bool replace);

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
