#include "decoders/mask_timer.h"

#include <utility>

namespace specdec {
namespace {

thread_local int t_mask_timers = 0;  // alive
thread_local double t_mask_seconds = 0.0;

}  // namespace

MaskTimer::MaskTimer() : begin_(std::chrono::steady_clock::now()) { ++t_mask_timers; }

MaskTimer::~MaskTimer() {
  if (--t_mask_timers == 0) {
    t_mask_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
}

double MaskTimer::take() { return std::exchange(t_mask_seconds, 0.0); }

}  // namespace specdec
