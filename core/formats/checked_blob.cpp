#include "core/formats/checked_blob.h"

#include <fmt/format.h>

#include <array>

#include "core/hash.h"
#include "core/snapshot_error.h"

namespace specdec {
namespace {

constexpr size_t kVersionBytes = 4;
constexpr size_t kHeaderLengthBytes = 8;
constexpr size_t kChecksumBytes = 8;

template <size_t kBytes>
std::array<std::byte, kBytes> little_endian(uint64_t number) {
  std::array<std::byte, kBytes> bytes;
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(number & 0xFFU);
    number >>= 8U;
  }
  return bytes;
}

uint64_t number_of(std::span<const std::byte> bytes) {
  uint64_t number = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    number = number << 8U | static_cast<uint64_t>(bytes[i - 1]);
  }
  return number;
}

std::span<const std::byte> text_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void write_blob(const BlobKind& kind, std::string_view header,
                std::span<const std::span<const std::byte>> payload,
                const std::function<void(std::span<const std::byte>)>& write) {
  uint64_t checksum = kHashStart;
  const auto put = [&](std::span<const std::byte> bytes) {
    checksum = fnv1a(checksum, bytes.data(), bytes.size());
    write(bytes);
  };
  put(text_bytes(kind.magic));
  put(little_endian<kVersionBytes>(kind.version));
  put(little_endian<kHeaderLengthBytes>(header.size()));
  put(text_bytes(header));
  for (const auto& part : payload) {
    put(part);
  }
  write(little_endian<kChecksumBytes>(checksum));
}

Blob parse_blob(const BlobKind& kind, std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < kind.magic.size() || text_of(bytes.first(kind.magic.size())) != kind.magic) {
    throw SnapshotVersionError(
        fmt::format("{}: is no {}, or one that was damaged at its beginning", file, kind.name));
  }
  const size_t fixed = kind.magic.size() + kVersionBytes + kHeaderLengthBytes;
  if (bytes.size() < fixed + kChecksumBytes) {
    throw SnapshotDamagedError(
        fmt::format("{}: has {} bytes only: it was cut off; make it again", file, bytes.size()));
  }
  const uint64_t version = number_of(bytes.subspan(kind.magic.size(), kVersionBytes));
  if (version != kind.version) {
    throw SnapshotVersionError(
        fmt::format("{}: a {} in format {}, but this program reads format {} only: make it again "
                    "with this program",
                    file, kind.name, version, kind.version));
  }
  const auto body = bytes.first(bytes.size() - kChecksumBytes);
  const uint64_t checksum = fnv1a(kHashStart, body.data(), body.size());
  const uint64_t length =
      number_of(body.subspan(kind.magic.size() + kVersionBytes, kHeaderLengthBytes));
  if (checksum != number_of(bytes.last(kChecksumBytes)) || length > body.size() - fixed) {
    throw SnapshotDamagedError(fmt::format(
        "{}: its checksum is not that of its bytes: it was changed or cut off; make it again",
        file));
  }
  const auto header = body.subspan(fixed, static_cast<size_t>(length));
  return {.header = text_of(header), .payload = body.subspan(fixed + header.size())};
}

}  // namespace specdec
