#pragma once
#include <cstddef>
#include <cstdint>

namespace specdec {

/// What a hash begins with: FNV's offset basis.
inline constexpr uint64_t kHashStart = 14695981039346656037U;

/// FNV-1a (Fowler, Noll, Vo) of bytes, on top of `hash`: for ids and checksums that files hold.
uint64_t fnv1a(uint64_t hash, const void* data, size_t size);
/// Hashes eight bytes at a time, with values other than those of the function above: fast enough to
/// run over weights at every load.
uint64_t hash_bytes(uint64_t hash, const void* data, size_t size);

}  // namespace specdec
