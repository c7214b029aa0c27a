#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace specdec {

/// A kind of file that says what it is and notices damage: `magic`, the version (uint32), the
/// header's length (uint64), the header, the payload, and the checksum (FNV-1a, uint64) of all
/// bytes before it. Numbers are little-endian.
struct BlobKind {
  std::string_view magic;  ///< the file's first bytes
  uint32_t version;        ///< the one that is written and read
  std::string_view name;   ///< for messages, such as "state of a generation"
};

/// Parts of a blob; they borrow its bytes.
struct Blob {
  std::string_view header;
  std::span<const std::byte> payload;
};

/// Writes a blob piece by piece; the payload is its parts one after the other.
void write_blob(const BlobKind& kind, std::string_view header,
                std::span<const std::span<const std::byte>> payload,
                const std::function<void(std::span<const std::byte>)>& write);

/// Takes a blob apart; `file` is its name in messages. Throws SnapshotVersionError for a file of
/// another kind or version, SnapshotDamagedError where bytes are missing or the checksum is not
/// that of the bytes.
Blob parse_blob(const BlobKind& kind, std::span<const std::byte> bytes, const std::string& file);

}  // namespace specdec
