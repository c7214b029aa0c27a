#include "decoders/shapes/draft_length.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

/// 1 + a + ... + a^length.
double expected_tokens(double acceptance, int64_t length) {
  double sum = 1.0;
  double power = 1.0;
  for (int64_t i = 0; i < length; ++i) {
    power *= acceptance;
    sum += power;
  }
  return sum;
}

}  // namespace

FixedDraftLength::FixedDraftLength(int64_t length) : length_(length) {
  require_config(length >= 1,
                 "a fixed length must be at least 1; plain decoding is 'autoregressive'");
}

int64_t FixedDraftLength::length(int64_t /*context*/) { return length_; }

HeuristicDraftLength::HeuristicDraftLength(const HeuristicOptions& options)
    : options_(options), length_(options.initial) {
  require_config(
      1 <= options.min && options.min <= options.initial && options.initial <= options.max,
      "heuristic needs 1 <= min <= initial <= max");
}

void HeuristicDraftLength::reset() { length_ = options_.initial; }

int64_t HeuristicDraftLength::length(int64_t /*context*/) { return length_; }

void HeuristicDraftLength::learn(int64_t drafted, int64_t accepted) {
  if (drafted > 0) {
    const int64_t change = accepted == drafted ? 2 : -1;
    length_ = std::clamp(length_ + change, options_.min, options_.max);
  }
}

AdaptiveDraftLength::AdaptiveDraftLength(AdaptiveOptions options) : options_(std::move(options)) {
  require_config(1 <= options_.initial && options_.initial <= options_.max,
                 "adaptive needs 1 <= initial <= max");
  require_config(0.0 <= options_.shrink_below && options_.shrink_below <= options_.grow_above &&
                     options_.grow_above <= 1.0,
                 "adaptive needs 0 <= shrink_below <= grow_above <= 1");
  require_config(0.0 <= options_.memory && options_.memory < 1.0, "adaptive needs 0 <= memory < 1");
  require_config(1 <= options_.pause && options_.pause <= options_.max_pause,
                 "adaptive needs 1 <= pause <= max_pause");
  require_config(options_.probe >= 1, "adaptive needs probe >= 1");
  for (const auto* curve : {&options_.target_cost, &options_.drafter_cost}) {
    require_config(!*curve || !(*curve)->points.empty(),
                   "adaptive: a cost curve is empty; leave it out where costs do not count");
  }
  AdaptiveDraftLength::reset();
}

void AdaptiveDraftLength::reset() {
  length_ = options_.initial;
  context_ = 0;
  drafted_ = accepted_ = trials_ = 0.0;
  steps_at_one_ = 0;
  plain_left_ = 0;
  pause_ = options_.pause;
}

int64_t AdaptiveDraftLength::length(int64_t context) {
  context_ = context;
  if (plain_left_ > 0) {
    --plain_left_;
    return 0;
  }
  return length_;
}

void AdaptiveDraftLength::learn(int64_t drafted, int64_t accepted) {
  if (drafted == 0) {
    return;
  }
  const auto as_count = [](int64_t count) { return static_cast<double>(count); };
  drafted_ = options_.memory * drafted_ + as_count(drafted);
  accepted_ = options_.memory * accepted_ + as_count(accepted);
  // Tokens after a rejected one were not tried: they say nothing about the drafter.
  trials_ = options_.memory * trials_ + as_count(accepted < drafted ? accepted + 1 : accepted);
  steps_at_one_ = length_ == 1 ? steps_at_one_ + 1 : 0;
  adjust();
}

bool AdaptiveDraftLength::pays(int64_t length) const {
  if (drafted_ == 0.0) {
    return true;
  }
  if (!options_.target_cost) {
    return accepted_ >= options_.shrink_below * drafted_;
  }
  const double plain = options_.target_cost->seconds(1, context_);
  const double token = options_.drafter_cost ? options_.drafter_cost->seconds(1, context_) : 0.0;
  const double step =
      options_.target_cost->seconds(1 + length, context_) + static_cast<double>(length) * token;
  return expected_tokens(accepted_ / trials_, length) * plain > step;
}

void AdaptiveDraftLength::adjust() {
  const double rate = accepted_ / drafted_;
  if (rate > options_.grow_above && length_ < options_.max && pays(length_ + 1)) {
    ++length_;
    pause_ = options_.pause;
  } else if (rate < options_.shrink_below || !pays(length_)) {
    if (length_ > 1) {
      --length_;
    } else if (steps_at_one_ >= options_.probe && !pays(1)) {
      begin_pause();
    }
  }
}

void AdaptiveDraftLength::begin_pause() {
  plain_left_ = pause_;
  pause_ = std::min(2 * pause_, options_.max_pause);
  // The probe after the pause is tried by itself: the text may have changed its kind.
  drafted_ = accepted_ = trials_ = 0.0;
  steps_at_one_ = 0;
}

}  // namespace specdec
