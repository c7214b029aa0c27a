#pragma once
#include <cstdint>

namespace specdec {

/// Copies from a device's memory to the host's, each of which waits for the device.
struct ReadBacks {
  int64_t count = 0;
  int64_t bytes = 0;

  ReadBacks& operator+=(const ReadBacks& other) {
    count += other.count;
    bytes += other.bytes;
    return *this;
  }
  bool operator==(const ReadBacks&) const = default;
};

}  // namespace specdec
