#pragma once
#include <filesystem>

namespace specdec {

/// A folder that results are to be written to. What is made in it is taken away again when an
/// exception leaves this object's scope before keep(): work that is refused leaves nothing behind.
class NewFolder {
 public:
  /// Makes nothing; looks which of the path's folders there are. One that holds something already
  /// is never touched.
  explicit NewFolder(std::filesystem::path path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }  ///< absolute
  /// Keeps other processes from writing to the folder, which has been made, while this object
  /// lives. Throws Error when one is writing to it, whose files stay.
  void lock();
  /// There are results, which stay.
  void keep() { is_kept_ = true; }

 private:
  std::filesystem::path path_;
  std::filesystem::path existing_;  ///< the longest part of the path that was there
  bool is_kept_ = false;
  int descriptor_ = -1;  ///< of the folder that is locked
  int exceptions_;
};

}  // namespace specdec
