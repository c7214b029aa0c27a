#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "kv/page_memory.h"

namespace specdec {

/// The numbers of states of recurrent layers, a row of a memory each, which never move. A state is
/// in use while a HeldState names it; its row is given away again then.
class StatePool {
 public:
  /// `elements`: of the numbers, `numbers` of a state. At most `capacity` states.
  StatePool(int64_t numbers, const at::TensorOptions& elements, int64_t capacity)
      : memory_({numbers}, elements, capacity), capacity_(capacity) {}
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  /// Lets `states` more be taken, of those that the capacity has room for.
  void reserve(int64_t states);
  /// A state that nobody uses, whose numbers mean nothing; it was reserved. For HeldState.
  int32_t take();
  void hold(int32_t state) { ++uses_[static_cast<size_t>(state)]; }
  void release(int32_t state);

  /// [states, numbers]; undefined before the first reserve.
  const Tensor& memory() const { return memory_.pages(); }
  int64_t capacity() const { return capacity_; }
  int64_t used() const { return std::ssize(uses_) - std::ssize(free_); }
  /// States that take memory: all, where they are allocated at once.
  int64_t allocated() const { return memory().defined() ? memory().size(0) : 0; }

 private:
  PageMemory memory_;
  int64_t capacity_;
  std::vector<int64_t> uses_;  ///< of each state that was ever taken
  std::vector<int32_t> free_;  ///< of these, those of no use
};

/// A state of a pool, in use while this or a copy lives.
class HeldState {
 public:
  HeldState() = default;  ///< none
  /// A new one.
  explicit HeldState(StatePool& pool) : pool_(&pool), number_(pool.take()) {}
  HeldState(const HeldState& other) : pool_(other.pool_), number_(other.number_) {
    if (pool_ != nullptr) {
      pool_->hold(number_);
    }
  }
  HeldState(HeldState&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), number_(std::exchange(other.number_, -1)) {}
  HeldState& operator=(HeldState other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~HeldState() {
    if (pool_ != nullptr) {
      pool_->release(number_);
    }
  }

  /// The state's row in the pool's memory; -1 = none.
  int32_t number() const { return number_; }

 private:
  StatePool* pool_ = nullptr;
  int32_t number_ = -1;
};

}  // namespace specdec
