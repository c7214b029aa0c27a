#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/formats/atomic_file.h"
#include "core/formats/tensor_layout.h"

namespace specdec {

/// Writes a .safetensors file a part at a time, whole or not at all, tensors of wider elements
/// first, each aligned. Throws Error when the disk is full or the folder not writable.
class SafetensorsWriter {
 public:
  /// Writes the header; the tensors' bytes follow in the order of `tensors()`.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorLayout> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  const std::vector<TensorLayout>& tensors() const { return tensors_; }
  void write(std::span<const std::byte> bytes);
  /// Gives the file its name. All tensors must be written.
  void commit();

 private:
  AtomicFile file_;
  std::vector<TensorLayout> tensors_;
  uint64_t left_ = 0;  ///< bytes that are to come
};

}  // namespace specdec
