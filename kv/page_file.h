#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace specdec {

/// Where pages lie that are not in memory: bytes at multiples of kDirectAlignment. Reads and writes
/// may come from two threads at once. Throws Error where the disk fails.
class PageFile {
 public:
  virtual ~PageFile() = default;
  PageFile() = default;
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  virtual void read(int64_t offset, std::span<std::byte> memory) = 0;
  virtual void write(int64_t offset, std::span<const std::byte> memory) = 0;
};

/// A file of so many bytes in a folder ("" = the system's for temporary files), which has the
/// disk's room from the beginning and no name: it ends with its process, however that ends. Throws
/// Error where the folder cannot be written or the disk lacks the room.
std::unique_ptr<PageFile> temporary_page_file(const std::filesystem::path& folder, int64_t bytes);

}  // namespace specdec
