#include "kv/state_pool.h"

#include <algorithm>

#include "core/error.h"

namespace specdec {

void StatePool::reserve(int64_t states) {
  SPECDEC_CHECK(used() + states <= capacity_, "{} states of {}", used() + states, capacity_);
  memory_.reserve(std::max(std::ssize(uses_), used() + states));
  uses_.reserve(static_cast<size_t>(used() + states));
  free_.reserve(uses_.capacity());  // so that none fails to be released
}

int32_t StatePool::take() {
  if (!free_.empty()) {
    const int32_t state = free_.back();
    free_.pop_back();
    uses_[static_cast<size_t>(state)] = 1;
    return state;
  }
  SPECDEC_CHECK(memory().defined() && std::ssize(uses_) < memory().size(0),
                "a state is taken that was not reserved");
  uses_.push_back(1);
  return static_cast<int32_t>(uses_.size()) - 1;
}

void StatePool::release(int32_t state) {
  if (--uses_[static_cast<size_t>(state)] == 0) {
    free_.push_back(state);
  }
}

}  // namespace specdec
