#include "core/hash.h"

#include <cstring>

namespace specdec {
namespace {

constexpr uint64_t kPrime = 1099511628211U;

}  // namespace

uint64_t fnv1a(uint64_t hash, const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ bytes[i]) * kPrime;
  }
  return hash;
}

uint64_t hash_bytes(uint64_t hash, const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
  }
  return fnv1a(hash, bytes + i, size - i);
}

}  // namespace specdec
