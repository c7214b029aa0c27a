#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "grammar/automaton.h"
#include "grammar/tables/hash.h"
#include "grammar/token_mask.h"

namespace specdec {

/// The latest masks and steps of a grammar, for any number of threads: no look-up waits for a
/// thread that makes a mask. A newer answer takes the place of an older one.
class RecentAnswers {
 public:
  using Mask = std::shared_ptr<const TokenMask::Content>;

  Mask mask(StateId state) const {
    const auto entry = masks_[state % kMasks].load(std::memory_order_acquire);
    return entry != nullptr && entry->state == state ? entry->mask : nullptr;
  }
  void add_mask(StateId state, Mask mask) {
    masks_[state % kMasks].store(std::make_shared<const Entry>(Entry{state, std::move(mask)}),
                                 std::memory_order_release);
  }

  /// What `add_step` noted of the state and that key.
  std::optional<uint32_t> step(StateId state, uint32_t key) const {
    const Slot& slot = steps_[place_of(state, key)];
    const uint64_t value = slot.value.load(std::memory_order_relaxed);
    const bool same = (slot.check.load(std::memory_order_relaxed) ^ scrambled(value)) ==
                      (uint64_t{state} << 32 | key);
    return value != 0 && same ? std::optional(static_cast<uint32_t>(value)) : std::nullopt;
  }
  void add_step(StateId state, uint32_t key, uint32_t result) {
    Slot& slot = steps_[place_of(state, key)];
    const uint64_t value = kSet | result;
    slot.value.store(value, std::memory_order_relaxed);
    slot.check.store((uint64_t{state} << 32 | key) ^ scrambled(value), std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kMasks = 256;
  static constexpr size_t kSteps = 512;
  static constexpr uint64_t kSet = uint64_t{1} << 32;

  struct Entry {
    StateId state = 0;
    Mask mask;
  };
  /// Entry written and read in two pieces: they belong together when the check says so.
  struct Slot {
    std::atomic<uint64_t> value = 0;
    std::atomic<uint64_t> check = 0;
  };

  static uint64_t scrambled(uint64_t value) { return WordHash().add(value).value(); }
  static size_t place_of(StateId state, uint32_t key) {
    return WordHash().add(uint64_t{state} << 32 | key).value() % kSteps;
  }

  std::array<std::atomic<std::shared_ptr<const Entry>>, kMasks> masks_;
  std::array<Slot, kSteps> steps_;
};

}  // namespace specdec
