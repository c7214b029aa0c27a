#include "experiments/terminal/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

namespace specdec {
namespace {

constexpr double kBarSeconds = 0.1;
constexpr double kLineSeconds = 20.0;
constexpr int64_t kBarWidth = 30;

std::string duration_text(double seconds) {
  const int64_t whole = std::lround(seconds);
  return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                      : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

Progress::Style Progress::choose_style(bool quiet) {
  if (quiet) {
    return Style::kNone;
  }
  return isatty(STDERR_FILENO) == 1 ? Style::kBar : Style::kLines;
}

Progress::Progress(std::ostream& log, Style style, int64_t total, std::string unit)
    : log_(log),
      style_(style),
      total_(total),
      unit_(std::move(unit)),
      begin_(Clock::now()),
      last_draw_(begin_) {}

Progress::~Progress() {
  if (style_ == Style::kBar && drawn_) {
    log_ << '\n' << std::flush;
  }
}

void Progress::advance(const std::string& label) {
  ++done_;
  if (style_ == Style::kNone) {
    return;
  }
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - last_draw_).count();
  if (done_ != total_ && since < (style_ == Style::kBar ? kBarSeconds : kLineSeconds)) {
    return;
  }
  last_draw_ = now;
  draw(label, std::chrono::duration<double>(now - begin_).count());
}

void Progress::draw(const std::string& label, double elapsed_seconds) {
  const double left = elapsed_seconds / static_cast<double>(done_) *
                      static_cast<double>(std::max<int64_t>(0, total_ - done_));
  const auto times =
      fmt::format("{} elapsed, {} left", duration_text(elapsed_seconds), duration_text(left));
  if (style_ == Style::kLines) {
    log_ << fmt::format("{}/{} {}, {}: {}\n", done_, total_, unit_, times, label) << std::flush;
    return;
  }
  const auto filled = static_cast<size_t>(done_ >= total_ ? kBarWidth : kBarWidth * done_ / total_);
  // Carriage return and "erase to the end of the line" redraw the bar in place.
  log_ << fmt::format("\r[{:<{}}] {}/{}, {}  {:.30}\x1b[K", std::string(filled, '#'), kBarWidth,
                      done_, total_, times, label)
       << std::flush;
  drawn_ = true;
}

}  // namespace specdec
