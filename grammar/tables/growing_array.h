#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace specdec {

/// Values by number that stay at their addresses: while one thread makes room for more, others read
/// those whose numbers they were given.
template <class Value>
class GrowingArray {
 public:
  GrowingArray() = default;
  GrowingArray(const GrowingArray&) = delete;
  GrowingArray& operator=(const GrowingArray&) = delete;
  ~GrowingArray() {
    for (std::atomic<Value*>& piece : pieces_) {
      delete[] piece.load(std::memory_order_relaxed);
    }
  }

  /// The value at an index, which there must be room for.
  const Value& operator[](size_t index) const {
    const size_t piece = piece_of(index);
    return pieces_[piece].load(std::memory_order_acquire)[place_of(index, piece)];
  }
  Value& operator[](size_t index) { return const_cast<Value&>(std::as_const(*this)[index]); }

  /// The value at an index; nullptr while there is no room for it.
  const Value* find(size_t index) const {
    const bool known = pieces_[piece_of(index)].load(std::memory_order_acquire) != nullptr;
    return known ? &(*this)[index] : nullptr;
  }

  /// Makes room, of new values, where there is none. One thread at a time.
  Value& make(size_t index) {
    const size_t piece = piece_of(index);
    if (pieces_[piece].load(std::memory_order_relaxed) == nullptr) {
      pieces_[piece].store(std::make_unique<Value[]>(kFirst << piece).release(),
                           std::memory_order_release);
      bytes_ += (kFirst << piece) * sizeof(Value);
    }
    return (*this)[index];
  }

  /// Bytes without what the values own elsewhere. For the thread that makes room.
  uint64_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kFirst = 64;
  static constexpr size_t kPieces = 27;  ///< for all numbers of 32 bits

  static size_t piece_of(size_t index) {
    return static_cast<size_t>(std::bit_width(index + kFirst) - std::bit_width(kFirst));
  }

  static size_t place_of(size_t index, size_t piece) { return index + kFirst - (kFirst << piece); }

  std::array<std::atomic<Value*>, kPieces> pieces_ = {};  ///< each twice as long as the one before
  uint64_t bytes_ = 0;
};

}  // namespace specdec
