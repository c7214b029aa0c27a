#include "grammar/tables/cache_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace specdec {
namespace {

constexpr uint64_t kMagic = 0x4548434143445053;  // "SPDCACHE", where the lowest byte comes first

/// The end of a file; the list of entries stands before it.
struct Trailer {
  uint64_t magic = kMagic;
  std::array<uint64_t, 2> owner = {};
  uint64_t entries = 0;
  uint64_t checksum = 0;  ///< of the list and of this
};

/// Several words at once, which have not to wait for each other.
uint64_t checksum_of(std::span<const std::byte> bytes) {
  std::array<WordHash, 4> lanes;
  std::array<uint64_t, lanes.size()> words;
  for (size_t at = 0; at < bytes.size(); at += sizeof words) {
    const size_t count = std::min(sizeof words, bytes.size() - at);
    if (count < sizeof words) {
      words = {};
    }
    std::memcpy(words.data(), bytes.data() + at, count);
    for (size_t i = 0; i < lanes.size(); ++i) {
      lanes[i].add(words[i]);
    }
  }
  WordHash all;
  for (const WordHash& lane : lanes) {
    all.add(lane.value());
  }
  return all.add(bytes.size()).value();
}

uint64_t checksum_of(const Trailer& trailer, const std::vector<CacheFile::Entry>& entries) {
  WordHash hash;
  hash.add(checksum_of(std::as_bytes(std::span(entries))));
  hash.add(trailer.magic).add(trailer.owner[0]).add(trailer.owner[1]).add(trailer.entries);
  return hash.value();
}

std::filesystem::path with_folder(const std::filesystem::path& path) {
  std::error_code ignored;  // AtomicFile then says that the folder is not there
  std::filesystem::create_directories(path.parent_path(), ignored);
  return path;
}

}  // namespace

std::filesystem::path default_cache_folder() {
  if (const char* own = std::getenv("SPECDEC_CACHE")) {
    return own;
  }
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto caches = folder("XDG_CACHE_HOME"); caches.is_absolute()) {
    return caches / "specdec";
  }
  const auto home = folder("HOME");
  return home.is_absolute() ? home / ".cache" / "specdec" : std::filesystem::path();
}

// ---- Reading -----------------------------------------------------------------------------------

CacheFile::CacheFile(const std::filesystem::path& path, const std::array<uint64_t, 2>& owner)
    : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  read_entries(owner);
  for (size_t i = 0; i < entries_.size(); ++i) {
    index_.emplace(entries_[i].key, i);
  }
}

CacheFile::~CacheFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void CacheFile::read_entries(const std::array<uint64_t, 2>& owner) {
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    return;
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  Trailer trailer;
  if (size < sizeof trailer ||
      !read_at(size - sizeof trailer, std::as_writable_bytes(std::span(&trailer, 1)))) {
    return;
  }
  const uint64_t before = size - sizeof trailer;
  if (trailer.magic != kMagic || trailer.owner != owner ||
      trailer.entries > before / sizeof(Entry)) {
    return;
  }
  std::vector<Entry> entries(static_cast<size_t>(trailer.entries));
  const uint64_t first = before - trailer.entries * sizeof(Entry);
  if (!read_at(first, std::as_writable_bytes(std::span(entries))) ||
      checksum_of(trailer, entries) != trailer.checksum) {
    return;
  }
  const auto inside = [&](const Entry& entry) {
    return entry.offset <= first && entry.bytes <= first - entry.offset;
  };
  if (std::all_of(entries.begin(), entries.end(), inside)) {
    entries_ = std::move(entries);
  }
}

const CacheFile::Entry* CacheFile::find(const CacheKey& key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

bool CacheFile::read(const Entry& entry, std::span<std::byte> bytes) const {
  return read_at(entry.offset, bytes) && checksum_of(bytes) == entry.checksum;
}

bool CacheFile::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count == 0 || (count < 0 && errno != EINTR)) {
      return false;
    }
    const auto taken = static_cast<size_t>(std::max<ssize_t>(count, 0));
    bytes = bytes.subspan(taken);
    offset += taken;
  }
  return true;
}

// ---- Writing -----------------------------------------------------------------------------------

CacheFileWriter::CacheFileWriter(const std::filesystem::path& path,
                                 const std::array<uint64_t, 2>& owner)
    : owner_(owner), file_(with_folder(path)) {}

void CacheFileWriter::add(const CacheKey& key, std::span<const std::byte> bytes) {
  file_.write(bytes);
  entries_.push_back({key, size_, bytes.size(), checksum_of(bytes)});
  names_.insert(key);
  size_ += bytes.size();
}

void CacheFileWriter::commit() {
  Trailer trailer = {.owner = owner_, .entries = entries_.size()};
  trailer.checksum = checksum_of(trailer, entries_);
  file_.write(std::as_bytes(std::span(entries_)));
  file_.write(std::as_bytes(std::span(&trailer, 1)));
  file_.commit_unflushed();  // what is damaged is not read
}

}  // namespace specdec
