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
  /// Uses `threads`, the calling one among them; 0 = as many as the machine has.
  explicit RowThreads(int threads);
  ~RowThreads();
  RowThreads(const RowThreads&) = delete;
  RowThreads& operator=(const RowThreads&) = delete;

  /// Calls work(0), ..., work(rows - 1), each once, and returns when all have. Throws the first
  /// exception that one of them threw. A second caller at the same time works alone.
  void run(int64_t rows, const std::function<void(int64_t)>& work);

 private:
  struct Batch;
  /// What the threads wait at.
  struct Post {
    std::mutex mutex;
    std::condition_variable changed;
    std::shared_ptr<Batch> batch;
    bool ends = false;
  };

  void begin_threads(int64_t rows);
  static void wait_for_batches(Post& post);
  /// True in a copy of the process, which has none of the threads.
  bool is_forked() const;

  size_t wanted_;
  std::mutex running_;  ///< held by the caller whose batch the threads share
  std::unique_ptr<Post> post_ = std::make_unique<Post>();
  int64_t process_ = 0;  ///< process that began the threads
  std::vector<std::thread> threads_;
};

}  // namespace specdec
