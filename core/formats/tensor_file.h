#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/dtype.h"
#include "core/formats/mapped_file.h"

namespace specdec {

/// A tensor in a file: its description, and where its bytes lie.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  /// Row-major, blocks along the rows, in the mapped file; lives as long as the reader. A file need
  /// not align it to the element size.
  std::span<const std::byte> bytes;
  /// Each group of so many rows is stored in the order 0, n/2, 1, n/2 + 1, ...; 0 = in order.
  int64_t interleaved_rows = 0;
};

/// A file of tensors under their names, memory-mapped.
class TensorFile {
 public:
  virtual ~TensorFile() = default;
  TensorFile(TensorFile&&) noexcept = default;
  TensorFile& operator=(TensorFile&&) = delete;
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// What the file says beside its tensors, such as a safetensors header's __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// All tensors in the order of the data.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  /// The tensor of this name; nullptr when there is none.
  const TensorEntry* find(std::string_view name) const;
  /// True for an entry of tensors(), not for a copy of one.
  bool holds(const TensorEntry& entry) const;
  /// Gives the pages of a tensor that has been copied, or of `size` bytes of it, back to the
  /// system.
  void release(const TensorEntry& entry, size_t begin = 0, size_t size = SIZE_MAX) const;

 protected:
  /// Throws WeightsError naming the file: it cannot be mapped, or is empty.
  explicit TensorFile(const std::filesystem::path& path);
  std::span<const std::byte> file_bytes() const { return file_.bytes(); }
  /// Takes the tensors, whose names are distinct and whose bytes lie in the file or are kept by the
  /// derived class.
  void set_tensors(std::vector<TensorEntry> tensors);
  void set_metadata(std::map<std::string, std::string> metadata) {
    metadata_ = std::move(metadata);
  }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::map<std::string, std::string> metadata_;
  std::vector<TensorEntry> tensors_;
  std::vector<size_t> by_name_;  // indices into tensors_
};

}  // namespace specdec
