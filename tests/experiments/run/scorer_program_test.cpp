#include "experiments/run/scorer_program.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <string>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "experiments/terminal/interrupt.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

using Seconds = std::chrono::duration<double>;

class ScorerProgramTest : public testing::Test {
 protected:
  std::filesystem::path program(const std::string& body) const {
    return executable("#!/bin/sh\n" + body + "\n");
  }
  std::filesystem::path executable(const std::string& text) const {
    const auto path = folder_.write("score", text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  static std::optional<bool> run(const std::filesystem::path& program,
                                 const std::string& text = "an answer", double seconds = 10.0) {
    return run_scorer(
        program, seconds,
        {.prompt_id = "g1", .prompt = "how \"many\"?", .text = text, .reference = "7"});
  }
  /// Matches an error on prompt 'g1' that has the message.
  static auto fails_with(const std::string& message) {
    return ThrowsMessage<Error>(AllOf(HasSubstr("on prompt 'g1'"), HasSubstr(message)));
  }

  TemporaryFolder folder_;
};

TEST_F(ScorerProgramTest, GetsOneJsonObjectAndAnswersByItsStatus) {
  const auto copy = folder_.path() / "copy";
  const auto score =
      program("cat > '" + copy.string() + "'; grep -q right '" + copy.string() + "'");
  EXPECT_EQ(run(score, "right \xff\n"), true);
  EXPECT_EQ(read_text_file(copy),
            "{\"prompt\":\"how \\\"many\\\"?\",\"text\":\"right "
            "\xef\xbf\xbd\\n\",\"reference\":\"7\"}\n");
  EXPECT_EQ(run(score, "wrong"), false);
}

TEST_F(ScorerProgramTest, NeitherALongAnswerNorALongComplaintBlocks) {
  EXPECT_EQ(run(program("exit 0"), std::string(1 << 22, 'x')), true);
  EXPECT_EQ(run(program("head -c 3000000 /dev/zero >&2; echo out; exit 0")), true);
  EXPECT_THAT(
      [&] {
        (void)run(program("head -c 3000000 /dev/zero | tr '\\0' a >&2; echo end >&2; exit 4"));
      },
      fails_with("aaend"));
}

TEST_F(ScorerProgramTest, OtherEndsAreErrorsWithWhatItSaid) {
  EXPECT_THAT(
      [&] { (void)run(program("echo no compiler >&2; exit 3")); },
      fails_with(
          "ended with status 3, and not with 0 (right) or 1 (wrong); it said:\nno compiler"));
  EXPECT_THAT([&] { (void)run(program("kill -SEGV $$")); }, fails_with("ended by signal 11"));
  EXPECT_THAT([&] { (void)run(program("echo 'Traceback (most recent call last):' >&2; exit 1")); },
              fails_with("crashed; it said:\nTraceback"));
  EXPECT_EQ(run(program("echo mistaken >&2; exit 1")), false) << "it may say why";
}

TEST_F(ScorerProgramTest, WhatCannotBeStartedSaysWhy) {
  EXPECT_THAT([&] { (void)run(executable("print('no first line')\n")); },
              fails_with("first line must name its interpreter"));
  EXPECT_THAT([&] { (void)run(executable("#!/no/such/interpreter\n")); },
              fails_with("first line must name its interpreter"));
  EXPECT_THAT([&] { (void)run(folder_.path() / "missing"); }, fails_with("cannot be started"));
}

bool is_running(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string id, name, state;
  return (file >> id >> name >> state) && state != "Z";
}

/// The process whose id a file has.
void expect_gone(const std::filesystem::path& pid) {
  std::string process = read_text_file(pid);
  process.pop_back();
  for (int i = 0; i < 100 && is_running(process); ++i) {
    ::usleep(50000);
  }
  EXPECT_FALSE(is_running(process));
}

TEST_F(ScorerProgramTest, OneThatTakesTooLongIsKilledWithItsChildren) {
  const auto pid = folder_.path() / "pid";
  const auto score = program("sleep 100 & echo $! > '" + pid.string() + "'; wait");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run(score, "", 1.0), std::nullopt);
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 60.0);
  expect_gone(pid);
}

TEST_F(ScorerProgramTest, WhatItLeavesRunningDelaysNobody) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(
      run(program("sleep 100 & echo $! > '" + (folder_.path() / "pid").string() + "'"), "", 90.0),
      true);
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 60.0);
  expect_gone(folder_.path() / "pid");
}

TEST_F(ScorerProgramTest, ALongTracebackIsACrashToo) {
  const auto crashing = program(
      "echo 'Traceback (most recent call last):' >&2; head -c 50000 /dev/zero | tr '\\0' a >&2; "
      "exit 1");
  EXPECT_THAT([&] { (void)run(crashing); }, fails_with("crashed; it said:\naaa"));
}

TEST_F(ScorerProgramTest, CtrlCEndsTheWait) {
  {
    const InterruptGuard guard;
    (void)std::raise(SIGINT);
    EXPECT_THROW((void)run(program("sleep 100"), "", 90.0), Interrupted);
  }
  const InterruptGuard lowered;  // forgets it
}

TEST_F(ScorerProgramTest, AFileThatIsNoProgramIsAMistake) {
  EXPECT_EQ(program_mistake(program("exit 0")), "");
  EXPECT_THAT(program_mistake(folder_.path()), HasSubstr("is no file"));
  EXPECT_THAT(program_mistake(folder_.write("plain", "x")), HasSubstr("chmod +x"));
}

}  // namespace
}  // namespace specdec
