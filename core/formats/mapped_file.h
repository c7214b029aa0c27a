#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace specdec {

/// A file mapped into memory for reading. Throws WeightsError naming the file when it cannot be
/// opened or is not a regular file; an empty one has no bytes.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// Gives the pages of a part of a mapped file back to the system; they are read again when touched.
/// Pages shared with what lies beside it stay.
void release_pages(std::span<const std::byte> part);

}  // namespace specdec
