#include "grammar/row_threads.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <utility>

namespace specdec {

/// Rows are claimed one by one, so that a thread that comes late, or never, holds up none.
struct RowThreads::Batch {
  Batch(int64_t count, const std::function<void(int64_t)>& each) : rows(count), work(each) {}

  void help() {
    for (int64_t row = next.fetch_add(1); row < rows; row = next.fetch_add(1)) {
      try {
        work(row);
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = error == nullptr ? std::current_exception() : error;
      }
      if (done.fetch_add(1) + 1 == rows) {
        const std::lock_guard lock(mutex);
        all_done.notify_all();
      }
    }
  }

  void finish() {
    std::unique_lock lock(mutex);
    all_done.wait(lock, [this] { return done.load() == rows; });
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
  }

  const int64_t rows;
  const std::function<void(int64_t)>& work;  ///< lives until all rows are done
  std::atomic<int64_t> next = 0;
  std::atomic<int64_t> done = 0;
  std::mutex mutex;
  std::condition_variable all_done;
  std::exception_ptr error;
};

RowThreads::RowThreads(int threads)
    : wanted_(threads > 0 ? static_cast<size_t>(threads)
                          : std::max(1U, std::thread::hardware_concurrency())) {}

RowThreads::~RowThreads() {
  const bool forked = process_ != static_cast<int64_t>(getpid());
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (forked) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

void RowThreads::begin_threads() {
  if (threads_.empty()) {
    process_ = getpid();
  }
  try {
    while (threads_.size() + 1 < wanted_) {
      threads_.emplace_back([this] { wait_for_batches(); });
    }
  } catch (const std::system_error&) {  // the system gives no more: those that there are do it
    wanted_ = threads_.size() + 1;
  }
}

void RowThreads::wait_for_batches() {
  std::shared_ptr<Batch> newest;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || (batch_ != nullptr && batch_ != newest); });
    if (ends_) {
      return;
    }
    newest = batch_;
    lock.unlock();
    newest->help();
    lock.lock();
  }
}

void RowThreads::run(int64_t rows, const std::function<void(int64_t)>& work) {
  const auto batch = std::make_shared<Batch>(rows, work);
  const std::unique_lock running(running_, std::try_to_lock);
  if (rows > 1 && wanted_ > 1 && running.owns_lock()) {
    begin_threads();
    {
      const std::lock_guard lock(mutex_);
      batch_ = batch;
    }
    changed_.notify_all();
  }
  batch->help();
  batch->finish();
}

}  // namespace specdec
