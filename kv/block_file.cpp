#include "kv/block_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/formats/direct_file.h"
#include "core/hash.h"

namespace specdec {
namespace {

/// Bytes that reads and writes are multiples of, and what the system gives back of memory.
int64_t block_alignment() {
  return std::max<int64_t>(kDirectAlignment, ::sysconf(_SC_PAGESIZE));  // both are powers of two
}

}  // namespace

int64_t TieredPages::half_bytes(int64_t layer) const {
  const auto index = static_cast<size_t>(layer);
  return pages_per_block[index] * page_bytes[index];
}

int64_t TieredPages::file_bytes() const {
  return 2 * std::accumulate(page_bytes.begin(), page_bytes.end(), int64_t{0}) * capacity;
}

int64_t TieredPages::bytes_of(std::span<const BlockPlace> places) const {
  int64_t bytes = 0;
  for (const BlockPlace place : places) {
    bytes += block_bytes(place.layer);
  }
  return bytes;
}

std::vector<int64_t> TieredPages::blocks_of(int64_t layer, std::span<const int64_t> pages) const {
  std::vector<int64_t> blocks;
  for (const int64_t page : pages) {
    blocks.push_back(block_of(layer, page));
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

std::vector<int64_t> equal_pages(std::span<const int64_t> page_bytes) {
  int64_t most = 1;
  const int64_t alignment = block_alignment();
  for (const int64_t bytes : page_bytes) {
    if (bytes > 0) {
      most = std::lcm(most, alignment / std::gcd(alignment, bytes));
    }
  }
  return std::vector<int64_t>(page_bytes.size(), most);
}

std::vector<int64_t> equal_bytes(std::span<const int64_t> page_bytes) {
  int64_t bytes = block_alignment();
  for (const int64_t of_page : page_bytes) {
    bytes = std::lcm(bytes, std::max<int64_t>(of_page, 1));
  }
  std::vector<int64_t> pages;
  for (const int64_t of_page : page_bytes) {
    pages.push_back(of_page > 0 ? bytes / of_page : 1);
  }
  return pages;
}

BlockFile::BlockFile(TieredPages pages, std::unique_ptr<PageFile> file)
    : pages_(std::move(pages)), file_(std::move(file)), checksums_(pages_.page_bytes.size()) {
  int64_t begin = 0;
  for (const int64_t bytes : pages_.page_bytes) {
    begins_.push_back(begin);
    begin += 2 * bytes * pages_.capacity;
  }
}

/// A layer's values lie behind its keys.
int64_t BlockFile::offset(BlockPlace place, bool values) const {
  const auto layer = static_cast<size_t>(place.layer);
  return begins_[layer] + (values ? pages_.page_bytes[layer] * pages_.capacity : 0) +
         place.block * pages_.half_bytes(place.layer);
}

/// Checksum of block `index` of a run with these keys and values.
uint64_t BlockFile::checksum(int64_t layer, size_t index, std::span<const std::byte> keys,
                             std::span<const std::byte> values) const {
  const auto bytes = static_cast<size_t>(pages_.half_bytes(layer));
  const uint64_t hash = hash_bytes(kHashStart, keys.data() + index * bytes, bytes);
  return hash_bytes(hash, values.data() + index * bytes, bytes);
}

uint64_t& BlockFile::expected(BlockPlace place) {
  auto& checksums = checksums_[static_cast<size_t>(place.layer)];
  if (std::ssize(checksums) <= place.block) {
    checksums.resize(static_cast<size_t>(place.block) + 1);
  }
  return checksums[static_cast<size_t>(place.block)];
}

void BlockFile::write(std::span<const BlockPlace> run, std::span<const std::byte> keys,
                      std::span<const std::byte> values) {
  file_->write(offset(run[0], false), keys);
  file_->write(offset(run[0], true), values);
  for (size_t i = 0; i < run.size(); ++i) {
    expected(run[i]) = checksum(run[i].layer, i, keys, values);
  }
  written_bytes_ += std::ssize(keys) + std::ssize(values);
}

void BlockFile::read(std::span<const BlockPlace> run, std::span<std::byte> keys,
                     std::span<std::byte> values) {
  file_->read(offset(run[0], false), keys);
  file_->read(offset(run[0], true), values);
  for (size_t i = 0; i < run.size(); ++i) {
    if (checksum(run[i].layer, i, keys, values) != expected(run[i])) {
      const int64_t pages = pages_.pages_per_block[static_cast<size_t>(run[i].layer)];
      throw Error(fmt::format(
          "pages {} to {} of layer {} in the cache's file are damaged: their checksum is not that "
          "of their bytes. Check the disk, or name another folder with the cache's disk.",
          run[i].block * pages, (run[i].block + 1) * pages - 1, run[i].layer));
    }
  }
  read_bytes_ += std::ssize(keys) + std::ssize(values);
}

}  // namespace specdec
