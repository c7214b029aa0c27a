#pragma once
#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace specdec {

/// How far a run is, on a log stream: a bar that redraws itself on a terminal, else a line now and
/// then, nothing when quiet.
class Progress {
 public:
  enum class Style { kBar, kLines, kNone };
  /// kNone when quiet, kBar when standard error is a terminal.
  static Style choose_style(bool quiet);

  /// `unit`: what the total counts.
  Progress(std::ostream& log, Style style, int64_t total, std::string unit = "generations");
  /// Ends the bar's line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// One of `total` is done; `label` says what.
  void advance(const std::string& label);
  /// Raises the total by `more`.
  void expect(int64_t more) { total_ += more; }

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const std::string& label, double elapsed_seconds);

  std::ostream& log_;
  Style style_;
  int64_t total_;
  std::string unit_;
  int64_t done_ = 0;
  Clock::time_point begin_;
  Clock::time_point last_draw_;
  bool drawn_ = false;
};

}  // namespace specdec
