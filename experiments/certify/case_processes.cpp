#include "experiments/certify/case_processes.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "experiments/certify/certify_models.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;

/// How often a waiting parent looks for Ctrl-C.
constexpr std::chrono::milliseconds kGlance{200};
/// Exit code of a child that an exception ended.
constexpr int kThrown = 113;

/// Lets the parent wait for its children where the shell ignores SIGCHLD, which children inherit:
/// the system would forget how they ended.
class ChildrenAreKept {
 public:
  ChildrenAreKept() {
    struct sigaction kept = {};
    kept.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &kept, &before_);
  }
  ~ChildrenAreKept() { sigaction(SIGCHLD, &before_, nullptr); }
  ChildrenAreKept(const ChildrenAreKept&) = delete;
  ChildrenAreKept& operator=(const ChildrenAreKept&) = delete;

 private:
  struct sigaction before_ = {};
};

/// Time that a case has taken. While a program is stopped (Ctrl-Z), so are its children; the time
/// between two looks therefore counts as two glances at most.
class CaseClock {
 public:
  std::chrono::nanoseconds taken() {
    const Clock::time_point now = Clock::now();
    taken_ += std::min<std::chrono::nanoseconds>(now - last_look_, 2 * kGlance);
    last_look_ = now;
    return taken_;
  }

 private:
  Clock::time_point last_look_ = Clock::now();
  std::chrono::nanoseconds taken_{0};
};

/// Both ends of a pipe; closed with it.
class Pipe {
 public:
  Pipe() {
    if (pipe(ends_.data()) != 0) {
      throw Error("certify cannot make a pipe to a process of its own: too many files are open");
    }
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(size_t end) {
    if (ends_[end] >= 0) {
      close(ends_[end]);
      ends_[end] = -1;
    }
  }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

void write_all(int file, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write(file, bytes, size);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      _exit(kThrown);  // nobody reads any more
    }
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return fmt::format("it crashed: {} (signal {})", strsignal(signal), signal);
  }
  return WEXITSTATUS(status) == kThrown
             ? "an exception left it"
             : fmt::format("it ended the whole program, with exit code {}", WEXITSTATUS(status));
}

/// A child that runs the cases from one on.
class CaseProcess {
 public:
  CaseProcess(int64_t first, int64_t count, const std::string& scratch,
              const std::function<std::string(int64_t)>& run) {
    std::fflush(nullptr);  // else the child would write what waits in buffers, too
    const pid_t parent = getpid();
    id_ = fork();
    if (id_ < 0) {
      throw Error("certify cannot start a process of its own: the system has no room for one");
    }
    if (id_ == 0) {
      live(parent, first, count, scratch, run);
    }
    pipe_.close_end(1);
  }
  ~CaseProcess() {
    if (id_ > 0) {
      kill(id_, SIGKILL);
      (void)wait();
    }
  }
  CaseProcess(const CaseProcess&) = delete;
  CaseProcess& operator=(const CaseProcess&) = delete;

  /// The next case's result; after a crash the child is gone.
  CaseOutcome next(const CaseProcessOptions& options) {
    CaseClock clock;
    uint64_t size = 0;
    std::string answer;
    if (read_all(reinterpret_cast<char*>(&size), sizeof(size), options.limit, clock)) {
      answer.resize(size);
      if (read_all(answer.data(), size, options.limit, clock)) {
        return {.answer = std::move(answer)};
      }
    }
    if (is_late_) {
      kill(id_, SIGKILL);
      (void)wait();
      return {.crash = fmt::format("it did not end within {} s: an endless loop, or more work than "
                                   "that (--limit SECONDS)",
                                   std::chrono::duration<double>(options.limit).count())};
    }
    return {.crash = ending_of(wait())};
  }

 private:
  [[noreturn]] void live(pid_t parent, int64_t first, int64_t count, const std::string& scratch,
                         const std::function<std::string(int64_t)>& run) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a loop without an end does not outlive its parent
    if (getppid() != parent) {
      _exit(kThrown);
    }
    std::signal(SIGTERM, SIG_DFL);
    std::signal(SIGINT, SIG_IGN);  // the parent's, which ends this process
    pipe_.close_end(0);
    setenv("TMPDIR", scratch.c_str(), 1);
    at::set_num_threads(1);  // a team's threads do not live on in a child
    try {
      for (int64_t index = first; index < count; ++index) {
        const std::string answer = run(index);
        const uint64_t size = answer.size();
        write_all(pipe_.writer(), reinterpret_cast<const char*>(&size), sizeof(size));
        write_all(pipe_.writer(), answer.data(), answer.size());
      }
    } catch (...) {
      _exit(kThrown);
    }
    std::fflush(nullptr);
    _exit(0);
  }

  /// False at the end of what the child writes, and where it is late.
  bool read_all(char* bytes, size_t size, std::chrono::milliseconds limit, CaseClock& clock) {
    while (size > 0) {
      InterruptGuard::check();
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(limit - clock.taken());
      if (left.count() <= 0) {
        is_late_ = true;
        return false;
      }
      pollfd waiting{.fd = pipe_.reader(), .events = POLLIN, .revents = 0};
      if (poll(&waiting, 1, static_cast<int>(std::min(left, kGlance).count())) <= 0) {
        continue;
      }
      const ssize_t found = read(pipe_.reader(), bytes, size);
      if (found < 0 && errno == EINTR) {
        continue;
      }
      if (found <= 0) {
        return false;
      }
      bytes += found;
      size -= static_cast<size_t>(found);
    }
    return true;
  }

  int wait() {
    int status = 0;
    while (waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    id_ = -1;
    return status;
  }

  Pipe pipe_;
  pid_t id_ = -1;
  bool is_late_ = false;
};

}  // namespace

void run_in_processes(int64_t count, const CaseProcessOptions& options,
                      const std::function<std::string(int64_t index)>& run,
                      const std::function<void(int64_t index, const CaseOutcome& result)>& done) {
  const ChildrenAreKept kept;
  const ScratchFolder scratch;  // also of what a crash leaves
  std::optional<CaseProcess> process;
  for (int64_t index = 0; index < count; ++index) {
    if (!process) {
      process.emplace(index, count, scratch.path().string(), run);
    }
    const CaseOutcome result = process->next(options);
    if (!result.crash.empty()) {
      process.reset();
    }
    done(index, result);
  }
}

}  // namespace specdec
