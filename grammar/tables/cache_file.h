#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/formats/atomic_file.h"
#include "grammar/tables/hash.h"

namespace specdec {

/// Where commands keep what is slow to make: $SPECDEC_CACHE, or else `specdec` in $XDG_CACHE_HOME
/// or in ~/.cache. Empty when no such folder is named, or when SPECDEC_CACHE is set but empty.
std::filesystem::path default_cache_folder();

/// The name of an entry.
struct CacheKey {
  uint32_t kind = 0;  ///< one for each writer of entries
  uint32_t part = 0;
  std::array<uint64_t, 2> item = {};
  bool operator==(const CacheKey&) const = default;

  struct Hash {
    size_t operator()(const CacheKey& key) const {
      return WordHash().add(key.kind).add(key.part).add(key.item[0]).add(key.item[1]).value();
    }
  };
};

/// Named lists of numbers in a file that another process has written. It is never wrong: a file
/// that is not there, belongs to something else or is damaged has fewer entries, or none.
class CacheFile {
 public:
  /// Reads the list of entries only. `owner`: what the file must have been written with.
  CacheFile(const std::filesystem::path& path, const std::array<uint64_t, 2>& owner);
  ~CacheFile();
  CacheFile(const CacheFile&) = delete;
  CacheFile& operator=(const CacheFile&) = delete;

  struct Entry {
    CacheKey key;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t checksum = 0;
  };
  const std::vector<Entry>& entries() const { return entries_; }  ///< as they were written
  const Entry* find(const CacheKey& key) const;                   ///< nullptr: none

  /// False when the file does not have it whole; `values` may then hold anything.
  template <class Value>
  bool read(const CacheKey& key, std::vector<Value>& values) const {
    static_assert(std::is_trivially_copyable_v<Value>);
    const Entry* entry = find(key);
    if (entry == nullptr || entry->bytes % sizeof(Value) != 0) {
      return false;
    }
    values.resize(static_cast<size_t>(entry->bytes) / sizeof(Value));
    return read(*entry, std::as_writable_bytes(std::span(values)));
  }
  /// Parts 0, 1, 2, ... of a key.
  template <class... Values>
  bool read_parts(CacheKey key, std::vector<Values>&... parts) const {
    const auto read_next = [&](auto& part) {
      const bool found = read(key, part);
      ++key.part;
      return found;
    };
    return (read_next(parts) && ...);
  }

 private:
  void read_entries(const std::array<uint64_t, 2>& owner);
  bool read(const Entry& entry, std::span<std::byte> bytes) const;
  bool read_at(uint64_t offset, std::span<std::byte> bytes) const;

  int descriptor_ = -1;
  std::vector<Entry> entries_;
  std::unordered_map<CacheKey, size_t, CacheKey::Hash> index_;  ///< which of `entries_`
};

/// Writes such a file, which appears when it is committed.
class CacheFileWriter {
 public:
  /// Makes the folder. Throws Error when the file cannot be written, as all of these do.
  CacheFileWriter(const std::filesystem::path& path, const std::array<uint64_t, 2>& owner);

  template <class Value>
  void add(const CacheKey& key, const std::vector<Value>& values) {
    static_assert(std::is_trivially_copyable_v<Value>);
    add(key, std::as_bytes(std::span(values)));
  }
  template <class... Values>
  void add_parts(CacheKey key, const std::vector<Values>&... parts) {
    const auto add_next = [&](const auto& part) {
      add(key, part);
      ++key.part;
    };
    (add_next(parts), ...);
  }
  bool has(const CacheKey& key) const { return names_.contains(key); }
  void commit();

 private:
  void add(const CacheKey& key, std::span<const std::byte> bytes);

  std::array<uint64_t, 2> owner_;
  AtomicFile file_;
  std::vector<CacheFile::Entry> entries_;
  std::unordered_set<CacheKey, CacheKey::Hash> names_;
  uint64_t size_ = 0;
};

}  // namespace specdec
