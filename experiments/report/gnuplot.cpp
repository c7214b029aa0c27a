#include "experiments/report/gnuplot.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/utf8.h"

namespace specdec {
namespace {

constexpr std::chrono::seconds kPatience{20};

/// The script's file; gnuplot reads no script from a pipe while it writes to another of ours.
class ScriptFile {
 public:
  explicit ScriptFile(std::string_view script)
      : path_((std::filesystem::temp_directory_path() / "specdec-plot.XXXXXX").string()) {
    const int descriptor = ::mkstemp(path_.data());
    if (descriptor < 0) {
      throw Error("cannot make a temporary file");
    }
    ::close(descriptor);
    write_file(path_, script);
  }
  ~ScriptFile() { ::unlink(path_.c_str()); }
  ScriptFile(const ScriptFile&) = delete;
  ScriptFile& operator=(const ScriptFile&) = delete;
  char* path() { return path_.data(); }

 private:
  std::string path_;
};

/// Starts `gnuplot -d <script>`, its output going to `output`; 0 when it cannot be started.
pid_t start(char* script, int output) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string program = "gnuplot";
  std::string plain = "-d";  // without the user's start-up files
  const std::array<char*, 4> arguments = {program.data(), plain.data(), script, nullptr};
  pid_t process = 0;
  if (::posix_spawnp(&process, program.c_str(), &actions, nullptr, arguments.data(), environ) !=
      0) {
    process = 0;
  }
  ::posix_spawn_file_actions_destroy(&actions);
  return process;
}

/// All that comes through a pipe; none when it stays open longer than kPatience.
std::optional<std::string> read_to_end(int pipe) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::string text;
  std::array<char, 65536> block{};
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd waiting{.fd = pipe, .events = POLLIN, .revents = 0};
    const int ready = left.count() > 0 ? ::poll(&waiting, 1, static_cast<int>(left.count())) : 0;
    const ssize_t bytes = ready > 0 ? ::read(pipe, block.data(), block.size()) : ready;
    if (ready > 0 && bytes == 0) {
      return text;
    }
    if (bytes < 0 && errno == EINTR) {
      continue;
    }
    if (bytes <= 0) {
      return std::nullopt;
    }
    text.append(block.data(), static_cast<size_t>(bytes));
  }
}

}  // namespace

std::optional<std::string> run_gnuplot(std::string_view script) {
  try {
    ScriptFile file(script);
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
      return std::nullopt;
    }
    const pid_t process = start(file.path(), pipe[1]);
    ::close(pipe[1]);
    auto output = process == 0 ? std::nullopt : read_to_end(pipe[0]);
    ::close(pipe[0]);
    if (process == 0) {
      return std::nullopt;
    }
    if (!output) {
      ::kill(process, SIGKILL);
    }
    int status = 0;
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? output : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // no room for the script: a report without figures is still a report
  }
}

std::string quote_for_gnuplot(std::string_view text, size_t max_characters) {
  std::string quoted = "'";
  for (size_t count = 0; !text.empty(); ++count) {
    const Utf8Scan scan = scan_utf8(text);
    const std::string_view character = text.substr(0, scan.bytes);
    text.remove_prefix(scan.bytes);
    if (count + 1 >= max_characters && !text.empty()) {
      quoted += "…";
      break;
    }
    const auto byte = static_cast<unsigned char>(character[0]);
    if (!scan.valid) {
      quoted += '?';
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += ' ';
    } else if (byte == '\'') {
      quoted += "''";
    } else {
      quoted += character;
    }
  }
  return quoted + "'";
}

}  // namespace specdec
