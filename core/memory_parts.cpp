#include "core/memory_parts.h"

#include "core/error.h"

namespace specdec {

int64_t bytes_of(std::span<const MemoryPart> parts) {
  int64_t bytes = 0;
  for (const MemoryPart& part : parts) {
    bytes += part.bytes;
  }
  return bytes;
}

void SharedBytes::add(std::span<const MemoryPart> parts) {
  for (const MemoryPart& part : parts) {
    bytes_ += holders_[{part.owner, part.number}]++ == 0 ? part.bytes : 0;
  }
}

void SharedBytes::remove(std::span<const MemoryPart> parts) {
  for (const MemoryPart& part : parts) {
    const auto held = holders_.find({part.owner, part.number});
    SPECDEC_CHECK(held != holders_.end(), "a part of {} bytes has no holder", part.bytes);
    if (--held->second == 0) {
      holders_.erase(held);
      bytes_ -= part.bytes;
    }
  }
}

}  // namespace specdec
