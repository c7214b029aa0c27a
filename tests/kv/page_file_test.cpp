#include "kv/page_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "kv/page_memory.h"
#include "tests/kv/full_disk.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::HasSubstr;

TEST(TemporaryPageFileTest, HoldsWhatIsWrittenAndLeavesNoName) {
  const TemporaryFolder folder;
  const auto file = temporary_page_file(folder.path(), 1 << 20);
  ReservedMemory memory(8192);
  memory.use(8192);
  auto* bytes = static_cast<std::byte*>(memory.data());
  std::fill_n(bytes, 4096, std::byte{7});
  file->write(8192, {bytes, 4096});
  file->read(8192, {bytes + 4096, 4096});
  EXPECT_EQ(std::memcmp(bytes, bytes + 4096, 4096), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TemporaryPageFileTest, AFullDiskOrNoFolderIsAnError) {
  const TemporaryFolder folder;
  const auto message_of = [&](int64_t bytes) {
    return error_message<Error>([&] { (void)temporary_page_file(folder.path(), bytes); });
  };
  {
    const FullDisk full;  // a real one would be filled first
    EXPECT_THAT(message_of((3 << 20) + 1), HasSubstr("the disk has no room for 4 MiB of pages"));
  }
  EXPECT_THAT(message_of(-(1 << 20)), HasSubstr("no file can be given -1 MiB of pages of a cache"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(error_message<Error>([&] { (void)temporary_page_file(folder.path() / "no", 4096); }),
              HasSubstr("no file can be made here"));
}

}  // namespace
}  // namespace specdec
