#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

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

/// Values, numbered in the order in which they were first met: equal ones have the same number.
/// A value stays at its address.
template <class Value, class Hash>
class InternTable {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  uint32_t size() const { return size_; }
  const Value& operator[](uint32_t id) const {
    const auto piece = static_cast<size_t>(std::bit_width(id + kFirst) - std::bit_width(kFirst));
    return pieces_[piece][id + kFirst - (kFirst << piece)];
  }

  uint32_t intern(Value&& value) {
    const uint32_t found = find(value);
    return found != kNone ? found : add(std::move(value));
  }
  uint32_t intern(const Value& value) {  // a copy only where it is new
    const uint32_t found = find(value);
    return found != kNone ? found : add(value);
  }

  /// kNone when it was not met.
  uint32_t find(const Value& value) const { return slots_.empty() ? kNone : slots_[slot(value)]; }

  /// The value must be new.
  uint32_t add(Value value) {
    if (pieces_.empty() || pieces_.back().size() == kFirst << (pieces_.size() - 1)) {
      pieces_.emplace_back().reserve(kFirst << (pieces_.size() - 1));
    }
    pieces_.back().push_back(std::move(value));
    const uint32_t added = size_++;
    if (2 * size_ > slots_.size()) {
      slots_.assign(slots_.empty() ? 16 : 2 * slots_.size(), kNone);
      for (uint32_t id = 0; id < added; ++id) {
        slots_[slot((*this)[id])] = id;
      }
    }
    return slots_[slot((*this)[added])] = added;
  }

 private:
  /// Where the value is, or would be.
  size_t slot(const Value& value) const {
    size_t at = Hash()(value) & (slots_.size() - 1);
    while (slots_[at] != kNone && !((*this)[slots_[at]] == value)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }

  static constexpr uint32_t kFirst = 8;

  std::vector<std::vector<Value>> pieces_;  ///< each twice as long as the one before; never grow
  uint32_t size_ = 0;
  std::vector<uint32_t> slots_;  ///< ids; a power of two of them, at most half are taken
};

}  // namespace specdec
