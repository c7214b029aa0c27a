#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace specdec {

/// Words, mixed into one.
class WordHash {
 public:
  WordHash& add(uint64_t word) {
    hash_ = (hash_ ^ word) * 0xFF51AFD7ED558CCD;
    hash_ ^= hash_ >> 32;
    return *this;
  }
  /// The words, and that they end here.
  template <class Words>
  WordHash& add_all(const Words& words) {
    for (const uint64_t word : words) {
      add(word);
    }
    return add(words.size());
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0x9E3779B97F4A7C15;
};

/// Words, mixed into two: so many that no two things which are ever met have the same.
class WideHash {
 public:
  using Value = std::array<uint64_t, 2>;

  WideHash& add(uint64_t word) {
    left_.add(word);
    right_.add(std::rotl(word, 29));
    return *this;
  }
  WideHash& add(const Value& value) { return add(value[0]).add(value[1]); }
  WideHash& add(std::span<const std::byte> bytes) {
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
      add(word);
    }
    return add(bytes.size());
  }
  Value value() const { return {left_.value(), right_.value()}; }

 private:
  WordHash left_, right_;
};

}  // namespace specdec
