#include "core/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/hub_cache_folder.h"

namespace specdec {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kCommitA(40, 'a');
const std::string kCommitB = "b1" + std::string(38, '0');

TEST(HubNameTest, NamesAreRepositoryRevisionAndFile) {
  const auto plain = parse_hub_name("org/some.name-1");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->repository, "org/some.name-1");
  EXPECT_EQ(plain->revision, "");
  const auto revision = parse_hub_name("org/name@refs/pr/1");
  ASSERT_TRUE(revision);
  EXPECT_EQ(revision->repository, "org/name");
  EXPECT_EQ(revision->revision, "refs/pr/1");
  const auto file = parse_hub_name("org/name@v1/sub/model.q8.gguf");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->revision, "v1");
  EXPECT_EQ(file->file, "sub/model.q8.gguf");
  for (const char* none :
       {"name", "/org/name", "org/", "org/name/x", "./a/b", "../org/name", "", "org/name@",
        "org/..", "org/name/../x.gguf", "_org/name", "org/.name", "org/na me", "org/name@a//b",
        "org/name@a/", "org/name@/x.gguf", "org/name/.gguf", "org/name@v 1", "org/name/a\n.gguf"}) {
    EXPECT_FALSE(parse_hub_name(none)) << none;
  }
  EXPECT_EQ(parse_hub_name("org/name@a/b/c.bin")->revision, "a/b/c.bin");
  EXPECT_EQ(parse_hub_name("org/name/b.gguf@1/c.gguf")->file, "b.gguf@1/c.gguf");
}

TEST(HubNameTest, LongTextsAreReadLikeOthers) {
  const std::string name = "org/" + std::string(1 << 20, 'b');
  EXPECT_EQ(parse_hub_name(name)->repository, name);
  EXPECT_EQ(parse_hub_name(name + "@" + name)->revision, name);
  EXPECT_EQ(parse_hub_name("org/name/" + name + ".gguf")->file, name + ".gguf");
}

class HubCacheTest : public testing::Test {
 protected:
  HubCacheFolder cache_;
};

TEST_F(HubCacheTest, TheSnapshotOfMainIsFound) {
  cache_.add("org/name", kCommitA, {"config.json", "model.safetensors"});
  cache_.add("org/name", kCommitB, {"config.json"});
  cache_.ref("org/name", "main", kCommitA);
  EXPECT_EQ(find_model("org/name"), cache_.snapshot("org/name", kCommitA));
  // Files are links into blobs/, as the hub's client makes them.
  EXPECT_TRUE(fs::is_symlink(find_model("org/name") / "config.json"));
  EXPECT_TRUE(fs::exists(find_model("org/name") / "config.json"));
}

TEST_F(HubCacheTest, WithoutMainTheNewestSnapshotCounts) {
  cache_.add("org/name", kCommitA, {"config.json"});
  cache_.add("org/name", kCommitB, {"config.json"});
  fs::last_write_time(cache_.snapshot("org/name", kCommitA),
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(find_model("org/name"), cache_.snapshot("org/name", kCommitA));
  cache_.ref("org/name", "main", std::string(40, 'c'));  // a commit that is not there
  EXPECT_EQ(find_model("org/name"), cache_.snapshot("org/name", kCommitA));
}

TEST_F(HubCacheTest, RevisionsAreRefsOrBeginningsOfCommits) {
  cache_.add("org/name", kCommitA, {"config.json"});
  cache_.add("org/name", kCommitB, {"config.json"});
  cache_.ref("org/name", "main", kCommitA);
  cache_.ref("org/name", "refs/pr/1", kCommitB);
  EXPECT_EQ(find_model("org/name@refs/pr/1"), cache_.snapshot("org/name", kCommitB));
  EXPECT_EQ(find_model("org/name@b1"), cache_.snapshot("org/name", kCommitB));
  const auto message = error_message<WeightsError>([] { find_model("org/name@c"); });
  EXPECT_THAT(message, HasSubstr("no revision 'c'"));
  EXPECT_THAT(message, HasSubstr("main, refs/pr/1"));
  EXPECT_THAT(message, HasSubstr(kCommitB));
  EXPECT_THAT(message, HasSubstr("hf download org/name --revision c"));
  cache_.add("org/name", "b2" + std::string(38, '0'), {"config.json"});
  EXPECT_THAT(error_message<WeightsError>([] { find_model("org/name@b"); }),
              HasSubstr("several commits"));
}

TEST_F(HubCacheTest, GgufFilesAreNamedOrTheOnlyOne) {
  cache_.add("org/one", kCommitA, {"README.md", "m.gguf"});
  EXPECT_EQ(find_model("org/one"), cache_.snapshot("org/one", kCommitA) / "m.gguf");
  cache_.add("org/two", kCommitA, {"q4/m.gguf", "m.gguf"});
  EXPECT_EQ(find_model("org/two/q4/m.gguf"), cache_.snapshot("org/two", kCommitA) / "q4/m.gguf");
  EXPECT_EQ(find_model("org/two@aaaa/m.gguf"), cache_.snapshot("org/two", kCommitA) / "m.gguf");
  const auto several = error_message<WeightsError>([] { find_model("org/two"); });
  EXPECT_THAT(several, HasSubstr("several GGUF files: m.gguf, q4/m.gguf"));
  EXPECT_THAT(several, HasSubstr("Name one: org/two/m.gguf"));
  const auto missing = error_message<WeightsError>([] { find_model("org/two/q8.gguf"); });
  EXPECT_THAT(missing, HasSubstr("has no q8.gguf; its GGUF files: m.gguf, q4/m.gguf"));
  EXPECT_THAT(missing, HasSubstr("hf download org/two q8.gguf"));
  cache_.add("org/none", kCommitA, {"README.md"});
  EXPECT_THAT(error_message<WeightsError>([] { find_model("org/none"); }),
              HasSubstr("neither config.json nor a GGUF file"));
}

TEST_F(HubCacheTest, ASplitModelIsOneGgufFile) {
  const auto snapshot = cache_.snapshot("org/split", kCommitA);
  const std::string end = "-of-00002.gguf";
  cache_.add("org/split", kCommitA, {"q8/m-00001" + end, "q8/m-00002" + end});
  EXPECT_EQ(find_model("org/split"), snapshot / ("q8/m-00001" + end));
  cache_.add("org/split", kCommitA, {"q8/n-00002" + end});  // a part of another model
  EXPECT_THAT(error_message<WeightsError>([] { find_model("org/split"); }),
              HasSubstr("several GGUF files: q8/m-00001" + end + ", q8/n-00002" + end));
  cache_.add("org/part", kCommitA, {"m-00002" + end});  // whose reader says what is missing
  EXPECT_EQ(find_model("org/part"), cache_.snapshot("org/part", kCommitA) / ("m-00002" + end));
}

TEST_F(HubCacheTest, WhatIsMissingIsDownloaded) {
  const auto message = error_message<WeightsError>([] { find_model("org/absent"); });
  EXPECT_THAT(message, HasSubstr("no such file or folder"));
  EXPECT_THAT(message, HasSubstr(cache_.hub().string()));
  EXPECT_THAT(message, HasSubstr("hf download org/absent"));
  const auto address = [](const char* text) {
    return error_message<WeightsError>([text] { find_model(text); });
  };
  EXPECT_THAT(address("https://huggingface.co/org/absent/tree/main"),
              HasSubstr("tree/main: is an address. Name a folder, a GGUF file, or a model of the "
                        "hub that was downloaded: org/absent."));
  EXPECT_THAT(address("hf://org/absent"), HasSubstr("downloaded: org/absent."));
  EXPECT_THAT(address("https://example"), HasSubstr("downloaded, as OWNER/NAME."));
  EXPECT_EQ(find_model("/no/such"), "/no/such");  // no name of the hub: the caller's error
}

TEST_F(HubCacheTest, APathThatExistsCountsFirst) {
  const TemporaryFolder here;
  fs::create_directories(here.path() / "org/name");
  cache_.add("org/name", kCommitA, {"config.json"});
  const auto before = fs::current_path();
  fs::current_path(here.path());
  const auto found = find_model("org/name");
  fs::current_path(before);
  EXPECT_EQ(found, "org/name");
}

TEST_F(HubCacheTest, TheEnvironmentSaysWhereTheCacheIs) {
  EXPECT_EQ(hub_cache_folder(), cache_.hub());
  ::unsetenv("HF_HUB_CACHE");
  ::unsetenv("HUGGINGFACE_HUB_CACHE");
  ::setenv("HF_HOME", "/data/hf", 1);
  EXPECT_EQ(hub_cache_folder(), "/data/hf/hub");
  ::setenv("SPECDEC_TEST_FOLDER", "/data/a", 1);
  ::setenv("HF_HOME", "${SPECDEC_TEST_FOLDER}/b/$SPECDEC_TEST_FOLDER$SPECDEC_NOT_SET", 1);
  EXPECT_EQ(hub_cache_folder(), "/data/a/b//data/a$SPECDEC_NOT_SET/hub");
  ::unsetenv("SPECDEC_TEST_FOLDER");
  ::unsetenv("HF_HOME");
  ::setenv("XDG_CACHE_HOME", "/data/cache", 1);
  EXPECT_EQ(hub_cache_folder(), "/data/cache/huggingface/hub");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(hub_cache_folder(), fs::path(std::getenv("HOME")) / ".cache/huggingface/hub");
}

}  // namespace
}  // namespace specdec
