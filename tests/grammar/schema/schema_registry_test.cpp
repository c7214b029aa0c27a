#include "grammar/schema/schema_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

TEST(SchemaRegistryTest, FindsByUriWithoutFragment) {
  const SchemaRegistry registry = {{"http://x/a#", R"({"title": "a"})"}, {"b", "true"}};
  EXPECT_EQ(registry.size(), 2U);
  EXPECT_EQ(registry.find("http://x/a")->find("title")->text, "a");
  EXPECT_EQ(registry.find("http://x/a#/title"), registry.find("http://x/a"));
  EXPECT_TRUE(registry.contains("b#"));
  EXPECT_EQ(registry.find("http://x/"), nullptr);
  EXPECT_EQ(SchemaRegistry().find("b"), nullptr);
}

TEST(SchemaRegistryTest, CopiesShareWhatWasParsed) {
  SchemaRegistry registry = {{"a", "[1]"}};
  const SchemaRegistry before = registry;
  const JsonValue* parsed = before.find("a");
  EXPECT_EQ(registry.find("a"), parsed);
  registry.add("b", "{}");
  EXPECT_EQ(registry.find("a"), parsed);
  EXPECT_FALSE(before.contains("b"));
  registry.add("a", "[2]");
  EXPECT_EQ(registry.find("a")->items.front().text, "2");
  EXPECT_EQ(before.find("a"), parsed);
  EXPECT_EQ(parsed->items.front().text, "1");
}

TEST(SchemaRegistryTest, IsParsedOnceByThreads) {
  const SchemaRegistry registry = {{"a", R"({"title": "a"})"}};
  std::vector<const JsonValue*> found(8);
  std::vector<std::thread> threads;
  for (const JsonValue*& value : found) {
    threads.emplace_back([&value, copy = registry] { value = copy.find("a"); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(found, testing::Each(registry.find("a")));
}

TEST(SchemaRegistryTest, SaysWhatIsNoJson) {
  const SchemaRegistry registry = {{"http://x/a", "{\n\"a\": }"}};
  for (int time = 0; time < 2; ++time) {
    EXPECT_THAT(error_message<GrammarError>([&] { (void)registry.find("http://x/a"); }),
                testing::HasSubstr("http://x/a:2:"));
  }
}

}  // namespace
}  // namespace specdec
