#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace specdec {

/// A piece of memory that several holders may refer to, as snapshots do to a page: two of the same
/// owner and number are one.
struct MemoryPart {
  const void* owner = nullptr;
  int64_t number = 0;
  int64_t bytes = 0;
};

using MemoryParts = std::vector<MemoryPart>;

/// Sum of the bytes of parts.
int64_t bytes_of(std::span<const MemoryPart> parts);

/// Bytes of parts of which several holders may have the same: each counts once, while there is a
/// holder.
class SharedBytes {
 public:
  /// A holder begins to refer to these parts, and ends.
  void add(std::span<const MemoryPart> parts);
  void remove(std::span<const MemoryPart> parts);
  int64_t bytes() const { return bytes_; }

 private:
  std::map<std::pair<const void*, int64_t>, int64_t> holders_;
  int64_t bytes_ = 0;
};

}  // namespace specdec
