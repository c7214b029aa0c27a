#include "experiments/run/scorer_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kKeptErrors = 4000;
constexpr const char* kTraceback = "Traceback (most recent call last)";
constexpr std::chrono::milliseconds kLook{50};

/// An open file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {
    if (descriptor < 0) {
      throw Error(fmt::format("cannot talk to the scorer: {}", std::strerror(errno)));
    }
  }
  ~Descriptor() { ::close(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

/// What a program reads: a file in memory, so that one that reads nothing blocks nobody.
int input_file(std::string_view text) {
  const int file = ::memfd_create("specdec-scorer", MFD_CLOEXEC);
  while (file >= 0 && !text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      ::close(file);
      return -1;
    }
    text.remove_prefix(written < 0 ? 0 : static_cast<size_t>(written));
  }
  if (file >= 0) {
    ::lseek(file, 0, SEEK_SET);
  }
  return file;
}

/// A running program in a process group of its own; what still runs at the end is killed.
class Child {
 public:
  Child(const std::filesystem::path& program, int input, int errors) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    ::posix_spawnattr_init(&attributes);
    sigset_t defaults;  // this program ignores SIGPIPE; its pipelines should not
    ::sigemptyset(&defaults);
    ::sigaddset(&defaults, SIGPIPE);
    ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    std::string name = program.string();
    const std::array<char*, 2> arguments = {name.data(), nullptr};
    const int code =
        ::posix_spawn(&process_, name.c_str(), &actions, &attributes, arguments.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (code != 0) {
      process_ = 0;
      throw Error(fmt::format("cannot be started: {}{}", std::strerror(code),
                              code == ENOEXEC || code == ENOENT
                                  ? "; a script's first line must name its interpreter, such as "
                                    "#!/usr/bin/env python3"
                                  : ""));
    }
  }
  ~Child() {
    if (process_ != 0 && !status_) {
      (void)kill_and_reap();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Status of the program as waitpid gives it; none while it runs.
  std::optional<int> status() {
    siginfo_t ended{};
    if (!status_ && ::waitid(P_PID, process_, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 &&
        errno != EINTR) {
      process_ = 0;  // someone else has reaped it: the id may be another's
      throw Error(fmt::format("cannot be waited for: {}", std::strerror(errno)));
    }
    if (!status_ && ended.si_pid == process_) {
      status_ = kill_and_reap();
    }
    return status_;
  }

 private:
  /// Kills and reaps the program. What it started goes first: until it is reaped, no other group
  /// has its id.
  int kill_and_reap() {
    ::kill(-process_, SIGKILL);
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

  pid_t process_ = 0;
  std::optional<int> status_;
};

/// The end of what a program wrote to standard error.
struct Complaint {
  std::string text;
  bool is_traceback = false;  ///< of Python, anywhere in it
};

/// What comes through a pipe that does not block; true at its end.
bool read_some(int pipe, Complaint& complaint) {
  constexpr int kMaxBlocks = 64;  // one that never stops writing still has its deadline
  std::array<char, 4096> block{};
  for (int i = 0; i < kMaxBlocks; ++i) {
    const ssize_t bytes = ::read(pipe, block.data(), block.size());
    if (bytes <= 0) {
      return bytes == 0;
    }
    std::string& text = complaint.text;
    text.append(block.data(), static_cast<size_t>(bytes));
    complaint.is_traceback = complaint.is_traceback || text.find(kTraceback) != std::string::npos;
    text.erase(0, text.size() - std::min(text.size(), kKeptErrors));
  }
  return false;
}

/// Waits for the program's end, and reads what it says meanwhile; none after `seconds`.
std::optional<int> wait_for(Child& child, int errors, double seconds, Complaint& complaint) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  bool at_end = false;
  while (Clock::now() < deadline) {
    const auto status = child.status();
    InterruptGuard::check();
    pollfd waiting{.fd = at_end ? -1 : errors, .events = POLLIN, .revents = 0};
    // Without a pipe to wait for, or with one that a program's own children keep open, look again.
    const int patience = status ? 0 : static_cast<int>(at_end ? 2 : kLook.count());
    if (::poll(&waiting, 1, patience) > 0) {
      at_end = read_some(errors, complaint) || at_end;
    }
    if (status) {
      return status;
    }
  }
  return child.status();
}

/// What went wrong; "" for a status that says right or wrong.
std::string failure(int status, bool is_traceback) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                       ::strsignal(WTERMSIG(status)));
  }
  const int code = WEXITSTATUS(status);
  if (code == 1 && is_traceback) {
    return "crashed";
  }
  return code > 1 ? fmt::format("ended with status {}, and not with 0 (right) or 1 (wrong)", code)
                  : "";
}

}  // namespace

std::string program_mistake(const std::filesystem::path& program) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(program, ignored)) {
    return fmt::format("'{}' is no file", program.string());
  }
  if (::access(program.c_str(), X_OK) != 0) {
    return fmt::format(
        "'{}' is not executable: chmod +x it; a script's first line names its "
        "interpreter",
        program.string());
  }
  return "";
}

std::optional<bool> run_scorer(const std::filesystem::path& program, double seconds,
                               const ScoredAnswer& answer) {
  const nlohmann::ordered_json json = {
      {"prompt", answer.prompt}, {"text", answer.text}, {"reference", answer.reference}};
  Complaint complaint;
  std::string message;
  try {
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
      throw Error(std::strerror(errno));
    }
    const Descriptor errors(pipe[0]);
    std::optional<Descriptor> into(std::in_place, pipe[1]);
    ::fcntl(errors.get(), F_SETFL, O_NONBLOCK);
    const Descriptor input(input_file(json_text(json) + "\n"));
    Child child(program, input.get(), into->get());
    into.reset();
    const auto status = wait_for(child, errors.get(), seconds, complaint);
    if (!status) {
      return std::nullopt;
    }
    message = failure(*status, complaint.is_traceback);
    if (message.empty()) {
      return WEXITSTATUS(*status) == 0;
    }
  } catch (const Error& error) {
    message = error.what();
  }
  std::string& text = complaint.text;
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  throw Error(fmt::format("scorer {} on prompt '{}': {}{}", program.string(), answer.prompt_id,
                          message, text.empty() ? "" : "; it said:\n" + text));
}

}  // namespace specdec
