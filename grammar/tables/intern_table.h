#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "grammar/tables/hash.h"
#include "grammar/tables/hash_slots.h"

namespace specdec {

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

  /// Bytes without what the values own elsewhere.
  uint64_t bytes() const {
    const uint64_t values = pieces_.empty() ? 0 : (kFirst << pieces_.size()) - kFirst;
    return values * sizeof(Value) + slots_.bytes();
  }

  uint32_t intern(Value&& value) {
    const uint32_t found = find(value);
    return found != kNone ? found : add(std::move(value));
  }
  uint32_t intern(const Value& value) {  // a copy only where it is new
    const uint32_t found = find(value);
    return found != kNone ? found : add(value);
  }

  /// Number of a value; kNone when it was not met.
  uint32_t find(const Value& value) const {
    const uint32_t* found =
        slots_.find(Hash()(value), [&](uint32_t id) { return (*this)[id] == value; });
    return found == nullptr ? kNone : *found;
  }

  /// The value must be new.
  uint32_t add(Value value) {
    if (pieces_.empty() || pieces_.back().size() == kFirst << (pieces_.size() - 1)) {
      pieces_.emplace_back().reserve(kFirst << (pieces_.size() - 1));
    }
    pieces_.back().push_back(std::move(value));
    slots_.add(size_, [&](uint32_t id) { return Hash()((*this)[id]); });
    return size_++;
  }

 private:
  static constexpr uint32_t kFirst = 8;

  std::vector<std::vector<Value>> pieces_;  ///< each twice as long as the one before; never grow
  uint32_t size_ = 0;
  NumberSlots slots_;  ///< ids
};

}  // namespace specdec
