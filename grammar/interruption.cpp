#include "grammar/interruption.h"

namespace specdec {
namespace {

constexpr uint64_t kCallsALook = 64;  // reading the clock takes longer than most steps

thread_local Interruption* innermost = nullptr;

}  // namespace

Interruption::Interruption(double seconds, const std::atomic<bool>* cancelled)
    : seconds_(seconds), cancelled_(cancelled), outer_(innermost) {
  innermost = this;
}

Interruption::~Interruption() { innermost = outer_; }

void Interruption::check() {
  if (innermost != nullptr) {
    innermost->count();
  }
}

void Interruption::count() {
  if (++calls_ % kCallsALook == 0) {
    look();
  }
}

void Interruption::look() const {
  if (cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed)) {
    throw GrammarInterrupted("compiling the grammar was cancelled");
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
  if (spent.count() > seconds_) {
    throw GrammarInterrupted(
        fmt::format("compiling the grammar took longer than {} s; give it more time, or use a "
                    "smaller grammar",
                    seconds_));
  }
}

}  // namespace specdec
