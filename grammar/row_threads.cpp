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
  if (is_forked()) {
    for (std::thread& thread : threads_) {
      thread.detach();
    }
    (void)post_.release();  // its destructor would wait for threads that are not there
    return;
  }
  {
    const std::lock_guard lock(post_->mutex);
    post_->ends = true;
  }
  post_->changed.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

bool RowThreads::is_forked() const {
  return !threads_.empty() && process_ != static_cast<int64_t>(getpid());
}

void RowThreads::begin_threads(int64_t rows) {
  process_ = getpid();
  try {
    while (threads_.size() + 1 < std::min(wanted_, static_cast<size_t>(rows))) {
      threads_.emplace_back([post = post_.get()] { wait_for_batches(*post); });
    }
  } catch (const std::system_error&) {  // the system gives no more: those that there are do it
    wanted_ = threads_.size() + 1;
  }
}

void RowThreads::wait_for_batches(Post& post) {
  std::shared_ptr<Batch> newest;
  std::unique_lock lock(post.mutex);
  while (true) {
    post.changed.wait(lock, [&] { return post.ends || (post.batch != newest); });
    if (post.ends) {
      return;
    }
    newest = post.batch;
    lock.unlock();
    newest->help();
    lock.lock();
  }
}

void RowThreads::run(int64_t rows, const std::function<void(int64_t)>& work) {
  const auto batch = std::make_shared<Batch>(rows, work);
  const std::unique_lock running(running_, std::try_to_lock);
  if (running.owns_lock() && rows > 1 && wanted_ > 1 && !is_forked()) {
    begin_threads(rows);
    {
      const std::lock_guard lock(post_->mutex);
      post_->batch = batch;
    }
    post_->changed.notify_all();
  }
  batch->help();
  batch->finish();
}

}  // namespace specdec
