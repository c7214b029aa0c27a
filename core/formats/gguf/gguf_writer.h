#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/formats/atomic_file.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/tensor_layout.h"

namespace specdec {

/// A value of metadata to be written: integers become U32 where they fit, numbers F32, lists of
/// integers I32.
using GgufEntry = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
                               std::vector<float>, std::vector<std::string>, std::vector<bool>>;
using GgufEntries = std::vector<std::pair<std::string, GgufEntry>>;

/// What will be read from a file that holds these, under the name `where`; tensors have no bytes.
GgufContent written_content(const GgufEntries& metadata, const std::vector<TensorLayout>& tensors,
                            const std::string& where);

/// Writes a GGUF file (version 3), whole or not at all.
class GgufFileWriter {
 public:
  /// Writes all but the tensors' bytes, which follow in the order of `tensors`. Throws Error where
  /// the file cannot be written.
  GgufFileWriter(const std::filesystem::path& path, const GgufEntries& metadata,
                 std::vector<TensorLayout> tensors);

  /// The next bytes of the tensor that is being written, or the first ones of the next.
  void write(std::span<const std::byte> bytes);
  /// Gives the file its name. All tensors must be written.
  void commit();

 private:
  void pad();

  AtomicFile file_;
  std::vector<TensorLayout> tensors_;
  size_t tensor_ = 0;     ///< that is being written
  uint64_t written_ = 0;  ///< of its bytes
};

}  // namespace specdec
