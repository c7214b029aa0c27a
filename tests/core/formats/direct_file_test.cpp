// Files that are read and written past the page cache.
#include "core/formats/direct_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

int open_file(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

TEST(DirectFileTest, ReadsWhatWasWritten) {
  const TemporaryFolder folder;
  DirectFile file(folder.path() / "a", open_file(folder.path() / "a"), "");
  alignas(kDirectAlignment) std::byte written[kDirectAlignment];
  alignas(kDirectAlignment) std::byte read[kDirectAlignment];
  std::memset(written, 7, sizeof written);
  file.write(2 * kDirectAlignment, written);
  file.read(2 * kDirectAlignment, read);
  EXPECT_EQ(std::memcmp(read, written, sizeof read), 0);
}

TEST(DirectFileTest, TheEndOfTheFileIsAnErrorWithAdvice) {
  const TemporaryFolder folder;
  DirectFile file(folder.path() / "a", open_file(folder.path() / "a"), "Copy it once more.");
  alignas(kDirectAlignment) std::byte memory[kDirectAlignment];
  EXPECT_THAT(error_message<Error>([&] { file.read(0, memory); }),
              HasSubstr("a: cannot be read at byte 0: it ends there. Copy it once more."));
}

/// Unaligned memory stands for a file system that opens files directly and then refuses to read.
TEST(DirectFileTest, ThreadsThatGiveUpDirectReadsTogetherAllGoOn) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a";
  alignas(kDirectAlignment) std::byte page[kDirectAlignment] = {};
  DirectFile(path, open_file(path), "").write(0, page);
  std::atomic<int> errors = 0;
  for (int round = 0; round < 50; ++round) {
    DirectFile file(path, open_file(path), "");
    std::atomic<int> waiting = 4;
    const auto read = [&] {
      alignas(kDirectAlignment) std::byte memory[kDirectAlignment];
      --waiting;
      while (waiting > 0) {
        std::this_thread::yield();
      }
      try {
        file.read(0, {memory + 1, 64});
      } catch (const Error&) {
        ++errors;
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back(read);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  EXPECT_EQ(errors, 0);
}

}  // namespace
}  // namespace specdec
