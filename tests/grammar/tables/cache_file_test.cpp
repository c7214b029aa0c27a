#include "grammar/tables/cache_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::array<uint64_t, 2> kOwner = {7, 8};
constexpr CacheKey kWords = {.kind = 1, .part = 3, .item = {4, 5}};
constexpr CacheKey kParts = {.kind = 2};

const std::vector<uint32_t> kSomeWords = {1, 2, 3, 4, 5, 6, 7};
const std::vector<uint8_t> kSomeBytes = {9, 8, 7};
const std::vector<int64_t> kNoNumbers;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class CacheFileTest : public testing::Test {
 protected:
  std::filesystem::path write() const {
    const auto path = folder_.path() / "deeper" / "cache";
    CacheFileWriter writer(path, kOwner);
    writer.add(kWords, kSomeWords);
    writer.add_parts(kParts, kSomeBytes, kNoNumbers);
    EXPECT_TRUE(writer.has(kWords));
    EXPECT_FALSE(writer.has({.kind = 9}));
    writer.commit();
    return path;
  }

  /// How many of the three entries are read; all that are read must be right.
  static int read(const std::filesystem::path& path) {
    const CacheFile file(path, kOwner);
    std::vector<uint32_t> words;
    std::vector<uint8_t> bytes;
    std::vector<int64_t> numbers;
    const bool has_words = file.read(kWords, words);
    const bool has_parts = file.read_parts(kParts, bytes, numbers);
    EXPECT_TRUE(!has_words || words == kSomeWords);
    EXPECT_TRUE(!has_parts || (bytes == kSomeBytes && numbers.empty()));
    return (has_words ? 1 : 0) + (has_parts ? 2 : 0);
  }

  TemporaryFolder folder_;
};

TEST_F(CacheFileTest, ReadsWhatWasWritten) {
  const auto path = write();
  EXPECT_EQ(read(path), 3);
  const CacheFile file(path, kOwner);
  EXPECT_THAT(file.entries(), SizeIs(3));
  EXPECT_EQ(file.find(kWords)->bytes, 28U);
  EXPECT_EQ(file.find({.kind = 3}), nullptr);
  std::vector<uint64_t> longer;
  EXPECT_FALSE(file.read(kWords, longer));  // 28 bytes are no list of these
  std::vector<uint8_t> one;
  EXPECT_FALSE(file.read_parts(kWords, one, one));  // there is no part after it
}

TEST_F(CacheFileTest, NoFileAndOtherFilesHaveNothing) {
  EXPECT_THAT(CacheFile(folder_.path() / "none", kOwner).entries(), SizeIs(0));
  EXPECT_THAT(CacheFile(folder_.path(), kOwner).entries(), SizeIs(0));
  EXPECT_THAT(CacheFile(folder_.write("a", ""), kOwner).entries(), SizeIs(0));
  EXPECT_THAT(CacheFile(folder_.write("b", std::string(500, '\0')), kOwner).entries(), SizeIs(0));
  EXPECT_THAT(CacheFile(write(), {7, 9}).entries(), SizeIs(0));
}

TEST_F(CacheFileTest, ShorterAndLongerFilesHaveNothing) {
  const std::string whole = contents(write());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(read(folder_.write("short", whole.substr(0, size))), 0) << size;
  }
  EXPECT_EQ(read(folder_.write("long", whole + '\0')), 0);
}

TEST_F(CacheFileTest, ChangedBytesAreNeverRead) {
  const std::string whole = contents(write());
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ '\x40');
    EXPECT_NE(read(folder_.write("changed", changed)), 3) << at;
  }
}

TEST_F(CacheFileTest, WhatCannotBeWrittenIsAnErrorThatSaysWhere) {
  const auto file = folder_.write("file", "");
  EXPECT_THAT(error_message<Error>([&] { CacheFileWriter(file / "cache", kOwner); }),
              HasSubstr("file/cache: cannot create"));
}

/// An environment variable, as it was before when the test is over.
class Variable {
 public:
  explicit Variable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) {
      before_ = value;
    }
    ::unsetenv(name);
  }
  ~Variable() {
    ::unsetenv(name_);
    if (before_) {
      set(*before_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  void set(const std::string& value) const { ::setenv(name_, value.c_str(), 1); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(DefaultCacheFolderTest, GoesByTheEnvironment) {
  const Variable own("SPECDEC_CACHE");
  const Variable caches("XDG_CACHE_HOME");
  const Variable home("HOME");
  EXPECT_EQ(default_cache_folder(), "");
  home.set("/home/ann");
  EXPECT_EQ(default_cache_folder(), "/home/ann/.cache/specdec");
  caches.set("relative");  // which the specification of these folders wants to be ignored
  EXPECT_EQ(default_cache_folder(), "/home/ann/.cache/specdec");
  caches.set("/caches");
  EXPECT_EQ(default_cache_folder(), "/caches/specdec");
  own.set("/own");
  EXPECT_EQ(default_cache_folder(), "/own");
  own.set("");
  EXPECT_EQ(default_cache_folder(), "");
}

}  // namespace
}  // namespace specdec
