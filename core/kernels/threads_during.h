#pragma once
#include <ATen/Parallel.h>

#include <cstdint>

namespace specdec {

/// The process computes with this many threads (at::set_num_threads) until the end of the scope,
/// then with as many as before; 0 leaves them as they are. For the thread that computes.
class ThreadsDuring {
 public:
  explicit ThreadsDuring(int64_t threads)
      : before_(threads > 0 ? at::get_num_threads() : 0), changes_(before_ != threads) {
    if (changes_) {
      at::set_num_threads(static_cast<int>(threads));
    }
  }
  ~ThreadsDuring() {
    if (changes_) {
      at::set_num_threads(static_cast<int>(before_));
    }
  }
  ThreadsDuring(const ThreadsDuring&) = delete;
  ThreadsDuring& operator=(const ThreadsDuring&) = delete;

 private:
  int64_t before_;
  bool changes_;
};

}  // namespace specdec
