#include "core/formats/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string content(const fs::path& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class AtomicFileTest : public testing::Test {
 protected:
  fs::path path(const char* name) const { return folder_.path() / name; }
  int64_t files() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }

  TemporaryFolder folder_;
};

TEST_F(AtomicFileTest, AppearsWholeOrNotAtAll) {
  {
    AtomicFile file(path("new"));
    file.write("half");
    EXPECT_FALSE(fs::exists(path("new")));
  }
  EXPECT_EQ(files(), 0);
  write_file(path("new"), "first");
  write_file(path("new"), "second");
  EXPECT_EQ(content(path("new")), "second");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFileTest, WritesWhatLinksLeadTo) {
  write_file(path("file"), "old");
  fs::create_symlink("file", path("link"));
  fs::create_symlink(path("link"), path("second"));
  write_file(path("second"), "new");
  EXPECT_TRUE(fs::is_symlink(path("second")) && fs::is_symlink(path("link")));
  EXPECT_EQ(content(path("file")), "new");
  fs::create_symlink("later", path("dangling"));
  write_file(path("dangling"), "made");
  EXPECT_EQ(content(path("later")), "made");
}

TEST_F(AtomicFileTest, RefusesWhatIsNoFile) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_message<Error>([&] { write_file(path("pipe"), "text"); }),
              HasSubstr("pipe: is a device or pipe, which is not overwritten. Name a file."));
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  fs::create_symlink("pipe", path("link"));
  EXPECT_THROW(write_file(path("link"), "text"), Error);
  EXPECT_THAT(error_message<Error>([&] { write_file(folder_.path(), "text"); }),
              HasSubstr("is a folder"));
  EXPECT_THAT(error_message<Error>([&] { write_file(path("none") / "file", "text"); }),
              HasSubstr("none exists"));
}

TEST_F(AtomicFileTest, RefusesLinksInACircle) {
  fs::create_symlink("a", path("b"));
  fs::create_symlink("b", path("a"));
  EXPECT_THROW(write_file(path("a"), "text"), Error);
}

}  // namespace
}  // namespace specdec
