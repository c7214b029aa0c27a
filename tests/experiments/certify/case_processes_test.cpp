#include "experiments/certify/case_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.h"
#include "experiments/certify/certify.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// What became of each case.
std::vector<CaseOutcome> results_of(int64_t count, const std::function<std::string(int64_t)>& run,
                                    std::chrono::milliseconds limit = std::chrono::minutes(1)) {
  std::vector<CaseOutcome> results;
  run_in_processes(count, {.limit = limit}, run, [&](int64_t index, const CaseOutcome& result) {
    EXPECT_EQ(index, std::ssize(results));
    results.push_back(result);
  });
  return results;
}

[[noreturn]] void end_by(int signal) {
  std::signal(signal, SIG_DFL);  // a sanitizer would catch it and end the process in its own way
  std::raise(signal);
  std::abort();
}

TEST(CaseProcessesTest, AnswersComeBackInOrder) {
  const std::string large(300'000, 'x');
  const auto results = results_of(3, [&](int64_t index) {
    return index == 1 ? large : std::string("a\0b", 3) + std::to_string(index);
  });
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0].answer, std::string("a\0b0", 4));
  EXPECT_EQ(results[1].answer, large);
  EXPECT_EQ(results[2].answer, std::string("a\0b2", 4));
  for (const CaseOutcome& result : results) {
    EXPECT_EQ(result.crash, "");
  }
  EXPECT_TRUE(results_of(0, [](int64_t) { return ""; }).empty());
}

TEST(CaseProcessesTest, WhatEndsAProcessEndsOneCase) {
  const auto results = results_of(7, [](int64_t index) -> std::string {
    switch (index) {
      case 1:
        end_by(SIGSEGV);
      case 2:
        end_by(SIGABRT);
      case 3:
        std::_Exit(0);
      case 5:
        throw std::runtime_error("nobody catches it");
      default:
        return std::to_string(index);
    }
  });
  ASSERT_EQ(results.size(), 7U);
  for (const int64_t index : {0, 4, 6}) {
    EXPECT_EQ(results[static_cast<size_t>(index)].answer, std::to_string(index));
    EXPECT_EQ(results[static_cast<size_t>(index)].crash, "");
  }
  EXPECT_THAT(results[1].crash, HasSubstr("(signal 11)"));
  EXPECT_THAT(results[2].crash, HasSubstr("(signal 6)"));
  EXPECT_EQ(results[3].crash, "it ended the whole program, with exit code 0");
  EXPECT_EQ(results[5].crash, "an exception left it");
}

TEST(CaseProcessesTest, ACaseThatDoesNotEndIsEnded) {
  const auto results = results_of(
      2,
      [](int64_t index) {
        if (index == 0) {
          std::this_thread::sleep_for(std::chrono::hours(1));
        }
        return std::string("second");
      },
      std::chrono::milliseconds(700));
  ASSERT_EQ(results.size(), 2U);
  EXPECT_THAT(results[0].crash, AllOf(HasSubstr("within 0.7 s"), HasSubstr("--limit")));
  EXPECT_EQ(results[1].answer, "second");
}

/// As under a shell's `trap '' CHLD`, where waitpid finds no child.
TEST(CaseProcessesTest, AnIgnoredSigchldHidesNoCrash) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const auto results = results_of(2, [](int64_t index) -> std::string {
    if (index == 0) {
      end_by(SIGSEGV);
    }
    return "second";
  });
  EXPECT_EQ(std::signal(SIGCHLD, before), SIG_IGN) << "the caller's choice is back";
  ASSERT_EQ(results.size(), 2U);
  EXPECT_THAT(results[0].crash, HasSubstr("(signal 11)"));
  EXPECT_EQ(results[1].answer, "second");
}

/// As by Ctrl-Z, which stops all processes of a terminal's foreground group, and `fg`.
TEST(CaseProcessesTest, TheClockStandsWhileTheProgramIsStopped) {
  const pid_t group = fork();
  ASSERT_GE(group, 0);
  if (group == 0) {
    setpgid(0, 0);
    alarm(60);  // where the test fails, it ends too
    bool is_whole = false;
    const auto sleep = [](int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      return std::string("done");
    };
    try {
      run_in_processes(
          1, {.limit = std::chrono::seconds(4)}, sleep,
          [&](int64_t, const CaseOutcome& result) { is_whole = result.crash.empty(); });
    } catch (...) {
      _exit(2);  // and not into the other tests
    }
    _exit(is_whole ? 0 : 1);
  }
  setpgid(group, group);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ASSERT_EQ(kill(-group, SIGSTOP), 0);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  ASSERT_EQ(kill(-group, SIGCONT), 0);
  int status = -1;
  ASSERT_EQ(waitpid(group, &status, 0), group);
  EXPECT_EQ(status, 0);
}

TEST(CaseProcessesTest, FilesThatACrashLeavesAreRemoved) {
  const auto folder = std::filesystem::temp_directory_path();
  std::string left;
  const auto results = results_of(2, [&](int64_t index) -> std::string {
    const auto file = std::filesystem::temp_directory_path() / "left";
    if (index == 0) {
      std::ofstream(file) << "something";
      end_by(SIGKILL);
    }
    return std::filesystem::exists(file) ? file.string() : "";
  });
  ASSERT_EQ(results.size(), 2U);
  ASSERT_NE(results[1].answer, "") << "cases share the folder";
  EXPECT_FALSE(std::filesystem::exists(results[1].answer));
  EXPECT_EQ(std::filesystem::temp_directory_path(), folder);
}

TEST(CaseProcessesTest, CtrlCEndsAllCases) {
  const InterruptGuard guard;
  int64_t done = 0;
  const auto count = [&](int64_t, const CaseOutcome&) {
    ++done;
    std::raise(SIGINT);
  };
  EXPECT_THROW(run_in_processes(
                   5, {}, [](int64_t) { return std::string("x"); }, count),
               Interrupted);
  EXPECT_EQ(done, 1);
}

/// Ends the program where the target samples.
class CrashingDrafter final : public Drafter {
 public:
  explicit CrashingDrafter(std::function<void()> crash) : crash_(std::move(crash)) {}
  Draft propose(const DraftContext& context) override {
    if (!context.sampling.greedy()) {
      crash_();
    }
    Draft draft = Draft::root(context.committed.back());
    draft.add(0, 0);
    return draft;
  }

 private:
  std::function<void()> crash_;
};

Components with_crashing(const std::function<void()>& crash) {
  const Components all = builtin_components();
  Components components;
  components.caches = all.caches;
  components.strategies.add("speculative", all.strategies.entries().at("speculative"));
  components.verifiers.add("rejection", all.verifiers.entries().at("rejection"));
  components.draft_lengths.add("fixed", all.draft_lengths.entries().at("fixed"));
  components.drafters.add("prompt_lookup", all.drafters.entries().at("prompt_lookup"));
  components.drafters.add("crashing", {.help = "",
                                       .promise = Promise::kLossless,
                                       .prepare = [crash](const ConfigNode&, const RunPlan&) {
                                         return [crash](BuildContext&) {
                                           return std::make_unique<CrashingDrafter>(crash);
                                         };
                                       }});
  return components;
}

TEST(IsolatedCertifyTest, ACrashIsABrokenPromiseOfItsCombination) {
  const Components components = with_crashing([] { end_by(SIGSEGV); });
  std::ostringstream log;
  const CertifyResult result =
      certify(components, {.seeds = 1, .quiet = true, .isolate = true}, log);
  EXPECT_FALSE(result.passed());
  int64_t broken = 0;
  for (const CertifyRow& row : result.rows) {
    const bool crashes = row.cell.drafter.type == "crashing" && !row.greedy;
    EXPECT_EQ(row.finding == Finding::kBroken, crashes) << row.cell.yaml << row.reason;
    if (crashes) {
      ++broken;
      EXPECT_THAT(row.reason, AllOf(HasSubstr("it crashed"), HasSubstr("(signal 11)")));
    }
  }
  EXPECT_EQ(broken, 2) << "one for each draft length";
  EXPECT_THAT(result.untested, testing::IsEmpty());
}

TEST(IsolatedCertifyTest, AnEndlessLoopIsOneToo) {
  const Components components = with_crashing([] {
    std::atomic<int64_t> turns = 0;
    while (true) {
      ++turns;
    }
  });
  std::ostringstream log;
  const CertifyResult result = certify(
      components,
      {.names = {"crashing"}, .seeds = 1, .quiet = true, .isolate = true, .limit_seconds = 5.0},
      log);
  EXPECT_EQ(result.count(Finding::kBroken), 2);
  for (const CertifyRow& row : result.rows) {
    if (row.finding == Finding::kBroken) {
      EXPECT_THAT(row.reason, HasSubstr("did not end within 5 s"));
    }
  }
}

TEST(IsolatedCertifyTest, FindsWhatOneProcessFinds) {
  const Components components = with_crashing([] {});
  std::ostringstream log;
  CertifyOptions options{.seeds = 1, .quiet = true};
  const CertifyResult whole = certify(components, options, log);
  options.isolate = true;
  const CertifyResult apart = certify(components, options, log);
  ASSERT_EQ(apart.rows.size(), whole.rows.size());
  for (size_t i = 0; i < whole.rows.size(); ++i) {
    EXPECT_EQ(apart.rows[i].cell.yaml, whole.rows[i].cell.yaml);
    EXPECT_EQ(apart.rows[i].finding, whole.rows[i].finding);
    EXPECT_EQ(apart.rows[i].difference, whole.rows[i].difference);
    EXPECT_EQ(apart.rows[i].outcomes, whole.rows[i].outcomes);
    EXPECT_EQ(apart.rows[i].drafted, whole.rows[i].drafted);
    EXPECT_EQ(apart.rows[i].accepted, whole.rows[i].accepted);
    EXPECT_EQ(apart.rows[i].reason, whole.rows[i].reason);
  }
  EXPECT_EQ(apart.untested, whole.untested);
}

}  // namespace
}  // namespace specdec
