#pragma once
#include <chrono>

namespace specdec {

/// Times the grammar's work on masks: adds the seconds of its life to a sum.
class MaskTimer {
 public:
  /// nullptr = nobody asks.
  explicit MaskTimer(double* seconds)
      : seconds_(seconds), begin_(std::chrono::steady_clock::now()) {}
  ~MaskTimer() {
    if (seconds_ != nullptr) {
      *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
  }
  MaskTimer(const MaskTimer&) = delete;
  MaskTimer& operator=(const MaskTimer&) = delete;

 private:
  double* seconds_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace specdec
