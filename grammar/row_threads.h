#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace specdec {

/// Threads that share the rows of a batch. They begin with the first batch and sleep in between.
class RowThreads {
 public:
  /// `threads`: the calling one among them; 0 = as many as the machine has.
  explicit RowThreads(int threads);
  ~RowThreads();
  RowThreads(const RowThreads&) = delete;
  RowThreads& operator=(const RowThreads&) = delete;

  /// Calls work(0), ..., work(rows - 1), each once, and returns when all have. Throws the first
  /// exception that one of them threw. A second caller at the same time works alone.
  void run(int64_t rows, const std::function<void(int64_t)>& work);

 private:
  struct Batch;

  void begin_threads();
  void wait_for_batches();

  size_t wanted_;
  std::mutex running_;  ///< by the caller whose batch the threads share
  std::mutex mutex_;    ///< of what is below
  std::condition_variable changed_;
  std::shared_ptr<Batch> batch_;
  bool ends_ = false;
  int64_t process_ = 0;  ///< that began the threads: a fork has none of them
  std::vector<std::thread> threads_;
};

}  // namespace specdec
