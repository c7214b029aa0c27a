#include "core/formats/pickle/zip_archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "core/error.h"

namespace specdec {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kCentralBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kLocatorBytes = 20;
constexpr size_t kLongestComment = 0xffff;
constexpr uint16_t kZip64Extra = 1;
constexpr uint32_t kIn64 = 0xffffffff;  ///< a number that stands in the zip64 field

/// PKWARE's APPNOTE 6.3.10, as far as stored files need it.
class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  std::map<std::string, std::span<const std::byte>> read() const {
    const Directory directory = find_directory();
    std::map<std::string, std::span<const std::byte>> files;
    size_t at = directory.offset;
    for (uint64_t i = 0; i < directory.entries; ++i) {
      at += read_entry(at, files);
    }
    return files;
  }

 private:
  struct Directory {
    size_t offset = 0;
    uint64_t entries = 0;
  };
  struct Place {
    uint64_t packed, size, offset;
  };

  [[noreturn]] void fail(const std::string& problem) const {
    throw WeightsError(fmt::format(
        "{}: {}, so it is no archive of torch.save or a damaged one: copy or download it again.",
        where_, problem));
  }

  template <class Number>
  Number number(uint64_t at) const {
    if (at > bytes_.size() || bytes_.size() - at < sizeof(Number)) {
      fail("a record of the zip archive lies outside the file");
    }
    Number value;  // little-endian, as the machines that this runs on
    std::memcpy(&value, bytes_.data() + at, sizeof(Number));
    return value;
  }

  std::string text(uint64_t at, size_t size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) {
      fail("a name of the zip archive lies outside the file");
    }
    return {reinterpret_cast<const char*>(bytes_.data() + at), size};
  }

  Directory find_directory() const {
    const size_t size = bytes_.size();
    const size_t first = size - std::min(size, kEndBytes + kLongestComment);
    for (size_t at = size < kEndBytes ? first : size - kEndBytes + 1; at-- > first;) {
      if (number<uint32_t>(at) == kEnd) {
        return directory_at(at);
      }
    }
    fail("the directory at the end of the zip archive is missing");
  }

  Directory directory_at(size_t end) const {
    const auto entries = number<uint16_t>(end + 10);
    const auto offset = number<uint32_t>(end + 16);
    if (entries != 0xffff && offset != kIn64) {
      return {offset, entries};
    }
    if (end < kLocatorBytes || number<uint32_t>(end - kLocatorBytes) != kEnd64Locator) {
      fail("the zip64 directory is missing");
    }
    const auto end64 = number<uint64_t>(end - kLocatorBytes + 8);
    if (number<uint32_t>(end64) != kEnd64 || bytes_.size() - end64 < kEnd64Bytes) {
      fail("the zip64 directory is not where the archive says");
    }
    return {number<uint64_t>(end64 + 48), number<uint64_t>(end64 + 32)};
  }

  /// Adds the file of a directory entry; returns the entry's length.
  size_t read_entry(size_t at, std::map<std::string, std::span<const std::byte>>& files) const {
    if (number<uint32_t>(at) != kCentralHeader) {
      fail("an entry of the zip archive's directory is damaged");
    }
    const auto name_bytes = number<uint16_t>(at + 28);
    const auto extra_bytes = number<uint16_t>(at + 30);
    const auto comment_bytes = number<uint16_t>(at + 32);
    const std::string name = text(at + kCentralBytes, name_bytes);
    const Place place = place_of(at, at + kCentralBytes + name_bytes, extra_bytes);
    const bool encrypted = (number<uint16_t>(at + 8) & 1U) != 0;
    if (encrypted || number<uint16_t>(at + 10) != 0 || place.packed != place.size) {
      throw WeightsError(fmt::format(
          "{}: {} is compressed or encrypted in the zip archive. torch.save stores tensors as they "
          "are: unpack what holds this file, or save it again.",
          where_, name));
    }
    if (!files.emplace(name, data_of(name, place)).second) {
      fail(fmt::format("{} is twice in the zip archive", name));
    }
    return kCentralBytes + name_bytes + extra_bytes + comment_bytes;
  }

  /// Sizes and offset of an entry; those that do not fit in 32 bits stand in its zip64 field.
  Place place_of(size_t entry, size_t extra, size_t extra_bytes) const {
    const uint32_t packed = number<uint32_t>(entry + 20);
    const uint32_t size = number<uint32_t>(entry + 24);
    const uint32_t offset = number<uint32_t>(entry + 42);
    Place place{packed, size, offset};
    size_t field = extra;
    while (field + 4 <= extra + extra_bytes && number<uint16_t>(field) != kZip64Extra) {
      field += 4 + number<uint16_t>(field + 2);
    }
    field += 4;
    for (const auto& [stored, wide] :
         {std::pair{size, &place.size}, std::pair{packed, &place.packed},
          std::pair{offset, &place.offset}}) {
      if (stored == kIn64) {
        if (field + 8 > extra + extra_bytes) {
          fail("a zip64 field is missing");
        }
        *wide = number<uint64_t>(field);
        field += 8;
      }
    }
    return place;
  }

  std::span<const std::byte> data_of(const std::string& name, const Place& place) const {
    if (number<uint32_t>(place.offset) != kLocalHeader) {
      fail(fmt::format("{} is not where the zip archive's directory says", name));
    }
    const uint64_t begin = place.offset + kLocalBytes + number<uint16_t>(place.offset + 26) +
                           number<uint16_t>(place.offset + 28);
    if (begin > bytes_.size() || bytes_.size() - begin < place.size) {
      fail(fmt::format("{} ends outside the file", name));
    }
    return bytes_.subspan(begin, place.size);
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
};

}  // namespace

std::map<std::string, std::span<const std::byte>> read_zip(std::span<const std::byte> archive,
                                                           const std::string& where) {
  return ZipReader(archive, where).read();
}

}  // namespace specdec
