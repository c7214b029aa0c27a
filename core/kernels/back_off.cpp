#include "core/kernels/back_off.h"

#include <algorithm>

namespace specdec {

int64_t BackOff::allowed(int64_t wanted, Clock::time_point now) {
  if (active() && now >= until_) {
    limit_ = 0;
  }
  return active() ? std::min(wanted, limit_) : wanted;
}

void BackOff::note_late(int64_t used, int64_t late, Clock::time_point now) {
  // All went well for longer than the pause before: the machine had become quiet in between.
  const bool anew = pause_ == pause_.zero() || (!active() && now - until_ > pause_);
  pause_ = anew ? Clock::duration(kShortest) : std::min<Clock::duration>(2 * pause_, kLongest);
  limit_ = std::max<int64_t>(1, used - late);
  until_ = now + pause_;
}

}  // namespace specdec
