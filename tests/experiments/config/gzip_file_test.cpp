#include "experiments/config/gzip_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "core/error.h"
#include "experiments/config/config_file.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class GzipFileTest : public testing::Test {
 protected:
  std::filesystem::path compressed(const std::string& text, const char* mode = "wb9") const {
    const auto path = folder_.path() / "text.jsonl.gz";
    gzFile file = gzopen(path.c_str(), mode);
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return path;
  }

  std::string bytes(const std::filesystem::path& path) const {
    std::filesystem::copy_file(path, folder_.path() / "copy");
    return read_text_file(folder_.path() / "copy");
  }

  TemporaryFolder folder_;
};

TEST_F(GzipFileTest, ATextIsReadAsIfItWereNotCompressed) {
  std::string text =
      "\xEF\xBB\xBF"
      "begin\n";
  for (int i = 0; i < 200'000; ++i) {
    text += std::to_string(i) + "\n";
  }
  EXPECT_EQ(read_text_file(compressed(text)), text.substr(3));
  EXPECT_EQ(read_text_file(compressed("")), "");
  compressed("one, ");
  EXPECT_EQ(read_text_file(compressed("two", "ab9")), "one, two") << "gzip files may be joined";
}

TEST_F(GzipFileTest, TheExtensionIsThatOfTheText) {
  EXPECT_EQ(text_extension("a/b.jsonl.gz"), ".jsonl");
  EXPECT_EQ(text_extension("a/b.txt"), ".txt");
  EXPECT_EQ(text_extension("b.gz"), "");
}

TEST_F(GzipFileTest, DamagedFilesAreErrorsThatNameThem) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) {
    text += std::to_string(i * 7919 % 10'007);
  }
  const auto path = compressed(text);
  const std::string whole = bytes(path);
  const auto damaged = AllOf(HasSubstr("text.jsonl.gz"), HasSubstr("damaged or cut off"));
  for (const size_t size : {whole.size() - 1, whole.size() / 2, size_t{12}}) {
    folder_.write("text.jsonl.gz", whole.substr(0, size));
    EXPECT_THAT([&] { read_text_file(path); }, ThrowsMessage<ConfigError>(damaged)) << size;
  }
  std::string flipped = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 0x10);
  folder_.write("text.jsonl.gz", flipped);
  EXPECT_THAT([&] { read_text_file(path); }, ThrowsMessage<ConfigError>(damaged));
  folder_.write("text.jsonl.gz", "no gzip");
  EXPECT_THAT([&] { read_text_file(path); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("text.jsonl.gz"), HasSubstr("no gzip"))));
}

TEST_F(GzipFileTest, TheTextIsLimitedNotOnlyTheFile) {
  const auto path = compressed(std::string(size_t{3} << 20U, 'a'));
  EXPECT_EQ(read_text_file(path, size_t{3} << 20U).size(), size_t{3} << 20U);
  EXPECT_THAT([&] { read_text_file(path, size_t{2} << 20U); },
              ThrowsMessage<ConfigError>(HasSubstr("larger than 2 MiB")));
}

}  // namespace
}  // namespace specdec
