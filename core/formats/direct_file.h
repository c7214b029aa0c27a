#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace specdec {

/// Alignment of bytes in files and in memory that are read past the page cache.
inline constexpr int64_t kDirectAlignment = 4096;

/// An open file that is read and written past the page cache, so that it takes no memory of its
/// own: with O_DIRECT, or, where the file system has none, with pages dropped after each call.
/// Offsets, sizes and addresses are multiples of kDirectAlignment. Calls may come from several
/// threads.
class DirectFile {
 public:
  /// Owns the descriptor. `advice` ends the errors of reads and writes.
  DirectFile(std::filesystem::path path, int descriptor, std::string advice);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  /// Reads or writes all bytes. Throws Error.
  void read(int64_t offset, std::span<std::byte> memory);
  void write(int64_t offset, std::span<const std::byte> memory);

 private:
  /// What an error says was not done, and of a call that moves nothing.
  struct Words {
    const char* done;
    const char* nothing;
  };
  /// Calls call(data, bytes, offset), as pread and pwrite are, until all memory is done.
  template <class Memory, class Call>
  void transfer(int64_t offset, Memory memory, const Words& words, const Call& call);
  bool is_direct() const;
  bool give_up_direct();
  void drop_pages(int64_t offset, size_t bytes) const;

  std::filesystem::path path_;
  int descriptor_;
  std::string advice_;
};

}  // namespace specdec
