#include "experiments/metrics/record_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace specdec {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string complaint_of(const json& value, const std::function<void(const RecordKeys&)>& read) {
  const json record = {{"load", {{"a", value}}}};
  try {
    read(RecordKeys(record).object("load"));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RecordKeysTest, CountsAreWholeNumbersOnly) {
  const auto count = [](const RecordKeys& keys) { (void)keys.count("a"); };
  for (const json& good : {json(0), json(7), json(3.0), json((int64_t{1} << 53) - 1)}) {
    EXPECT_EQ(complaint_of(good, count), "") << good;
  }
  for (const json& wrong :
       {json("7"), json(-1), json(1.5), json(1e30), json(int64_t{1} << 53), json(UINT64_MAX),
        json(INT64_MIN), json(), json(true), json::array(), json::object()}) {
    EXPECT_THAT(complaint_of(wrong, count),
                HasSubstr("'load.a' must be a whole number of at least 0, but is "))
        << wrong;
  }
}

TEST(RecordKeysTest, OtherTypesAreNamedToo) {
  const auto expect = [](const json& wrong, const char* what, const auto& read) {
    EXPECT_EQ(complaint_of(wrong, read), std::string("'load.a' ") + what);
  };
  expect("x", "must be a number, but is \"x\"", [](const RecordKeys& k) { (void)k.number("a"); });
  expect(-1, "must be at least 0, but is -1", [](const RecordKeys& k) { (void)k.amount("a"); });
  expect(1, "must be true or false, but is 1", [](const RecordKeys& k) { (void)k.flag("a"); });
  expect(1, "must be a text, but is 1", [](const RecordKeys& k) { (void)k.text("a"); });
  expect(1, "must be a list, but is 1", [](const RecordKeys& k) { (void)k.numbers("a"); });
  expect(1, "must be an object, but is 1", [](const RecordKeys& k) { (void)k.object("a"); });
  expect(json::array({1, "x"}), "must hold only texts, but holds 1",
         [](const RecordKeys& k) { (void)k.texts("a"); });
  expect(json::array({1, 2}), "must have 3 entries, but has 2",
         [](const RecordKeys& k) { (void)k.counts("a", 3); });
  expect(json::array({int64_t{1} << 31}), "holds 2147483648, which is no token id",
         [](const RecordKeys& k) { (void)k.tokens("a"); });
  EXPECT_THAT(complaint_of(json::parse(R"([{"b": 1}, 2])"),
                           [](const RecordKeys& k) { (void)k.objects("a"); }),
              HasSubstr("'load.a[1]' must be an object"));
  EXPECT_THAT(complaint_of(json::parse("[[1, 2], [3, -4]]"),
                           [](const RecordKeys& k) { (void)k.count_lists("a"); }),
              HasSubstr("but holds -4"));
}

TEST(RecordKeysTest, MissingKeysHaveFallbacksWhereGiven) {
  const json record = {{"list", {1, 2.0}}};
  const RecordKeys keys(record);
  EXPECT_EQ(keys.count("a", 3), 3);
  EXPECT_EQ(keys.text("a", "b"), "b");
  EXPECT_EQ(keys.number("a", -0.5), -0.5);
  EXPECT_THAT(keys.numbers_if_there("a"), testing::IsEmpty());
  EXPECT_THAT(keys.counts("list"), ElementsAre(1, 2));
  EXPECT_THAT([&] { (void)keys.count("a"); },
              testing::ThrowsMessage<Error>("the key 'a' is missing"));
  const json number = 3;
  EXPECT_THAT([&] { (void)RecordKeys(number); },
              testing::ThrowsMessage<Error>("it must be an object, but is 3"));
}

}  // namespace
}  // namespace specdec
