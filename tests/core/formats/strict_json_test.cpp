#include "core/formats/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string strict_json_complaint(const std::string& text) {
  return error_message<WeightsError>([&] { parse_strict_json(text, "f.json"); });
}

TEST(StrictJsonTest, ReadsJson) {
  const auto value = parse_strict_json(R"({"a": {"x": 1}, "b": {"x": [2, null]}})", "f.json");
  EXPECT_EQ(value["a"]["x"], 1);
  EXPECT_EQ(value["b"]["x"][0], 2);
}

TEST(StrictJsonTest, NamesLineAndColumn) {
  EXPECT_THAT(strict_json_complaint("{\n  \"a\": 1,\n  oops\n}"),
              StartsWith("f.json:3:3: not valid JSON: "));
  EXPECT_THAT(strict_json_complaint(""), StartsWith("f.json:1:1: not valid JSON: "));
  EXPECT_THAT(strict_json_complaint("{} x"), StartsWith("f.json:1:4: not valid JSON: "));
}

// The parser says where a text is no JSON, but not where it is one that is not read.
TEST(StrictJsonTest, NamesLineAndColumnOfWhatItRefuses) {
  EXPECT_THAT(strict_json_complaint("{\n \"a\": [1,\n 1e400]\n}"),
              StartsWith("f.json:3:7: not valid JSON: number overflow"));
  EXPECT_THAT(strict_json_complaint("[1e999\n]"), StartsWith("f.json:1:7: not valid JSON: "));
  EXPECT_THAT(strict_json_complaint("{\"a\": 1,\n  \"a\": 2}"),
              StartsWith("f.json:2:5: the key \"a\" stands twice in one object."));
  std::string deep = "\n\n";
  deep.append(300, '[');
  EXPECT_THAT(strict_json_complaint(deep),
              StartsWith("f.json:3:202: nested more than 200 levels deep."));
}

TEST(StrictJsonTest, ReadsLinesByTheSameRules) {
  const auto message = [](std::string_view line) -> std::string {
    try {
      (void)parse_json_line(line).size();
    } catch (const std::exception& exception) {
      return plain_json_message(exception);
    }
    return "no error";
  };
  EXPECT_EQ(parse_json_line("{\"a\": 1}\n")["a"], 1);
  EXPECT_THAT(message("{\"a\": 1, \"a\": 1}"), HasSubstr("the key \"a\" stands twice"));
  EXPECT_THAT(message("[1e400]"), HasSubstr("number overflow"));
  EXPECT_THAT(message("{\"a\" 1}"), StartsWith("not valid JSON at column 6"));
  EXPECT_THAT(message(std::string(300, '[')), HasSubstr("levels deep"));
}

TEST(StrictJsonTest, RefusesAKeyTwiceInOneObject) {
  EXPECT_THAT(strict_json_complaint(R"({"a": {"x": 1, "y": 2, "x": 3}})"),
              HasSubstr("\"x\" stands twice"));
  EXPECT_EQ(strict_json_complaint(R"([{"x": 1}, {"x": 1}])"), "no error");
  EXPECT_EQ(strict_json_complaint(R"({"x": {"x": 1}})"), "no error");
}

TEST(StrictJsonTest, RefusesDeepNesting) {
  EXPECT_THAT(strict_json_complaint(std::string(100'000, '[')), HasSubstr("levels deep"));
}

TEST(StrictJsonTest, ReadFileNamesWhatItCannotRead) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_file(folder.write("f", std::string_view("a\0b\r\n", 5))),
            std::string("a\0b\r\n", 5));
  EXPECT_THAT(error_message<WeightsError>([&] { read_file(folder.path()); }),
              HasSubstr("is a folder"));
  EXPECT_THAT(error_message<WeightsError>([&] { read_file(folder.path() / "no"); }),
              HasSubstr("No such file"));
}

TEST(StrictJsonTest, ReadFileWaitsForNoPipeAndReadsNoDevice) {
  const TemporaryFolder folder;
  const auto pipe = folder.path() / "config.json";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_message<WeightsError>([&] { read_file(pipe); }),
              HasSubstr("config.json: is a named pipe, not a file."));
  EXPECT_THAT(error_message<WeightsError>([] { read_file("/dev/zero"); }),
              HasSubstr("/dev/zero: is a device, not a file."));
  std::filesystem::create_symlink(folder.write("there", "text"), folder.path() / "link");
  EXPECT_EQ(read_file(folder.path() / "link"), "text");
}

TEST(StrictJsonTest, PlainMessagesHoldNothingOfTheLibrary) {
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const std::exception& exception) {
      return plain_json_message(exception);
    }
    return "no error";
  };
  const nlohmann::json object = {{"a", "text"}};
  EXPECT_EQ(message([&] { (void)object.at("b"); }), "the key 'b' is missing");
  EXPECT_EQ(message([&] { (void)object.at("a").get<double>(); }),
            "a value must be number, but is string");
  EXPECT_EQ(message([] {
              const auto parsed = nlohmann::json::parse("{\"a\" 1}");
            }).rfind("not valid JSON at column 6: syntax error", 0),
            0U);
  EXPECT_EQ(message([] { throw Error("its own"); }), "its own");
}

}  // namespace
}  // namespace specdec
