#include "core/kernels/back_off.h"

#include <algorithm>

namespace specdec {
namespace {

constexpr int kPausePerLoss = 4;
constexpr int kQuietPerPause = 4;  // after as long a time without a loss, pauses begin anew

}  // namespace

int64_t BackOff::allowed(int64_t wanted, Clock::time_point now) {
  if (active() && now >= until_) {
    limit_ = 0;
  }
  return active() ? std::min(wanted, limit_) : wanted;
}

void BackOff::note_late(int64_t used, int64_t late, Clock::duration lost, Clock::time_point now) {
  const bool quiet_before = !active() && now - until_ > kQuietPerPause * pause_;
  const Clock::duration longer = quiet_before ? pause_.zero() : 2 * pause_;
  pause_ = std::clamp<Clock::duration>(std::max(longer, kPausePerLoss * lost), kShortest, kLongest);
  limit_ = std::max<int64_t>(1, used - late);
  until_ = now + pause_;
}

}  // namespace specdec
