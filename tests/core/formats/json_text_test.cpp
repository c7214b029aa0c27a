#include "core/formats/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace specdec {
namespace {

TEST(JsonTextTest, OneLineOrIndentedInTheOrderOfTheKeys) {
  const nlohmann::ordered_json json = {{"b", 1}, {"a", {1, 2}}};
  EXPECT_EQ(json_text(json), R"({"b":1,"a":[1,2]})");
  EXPECT_EQ(json_text(json, 1), "{\n \"b\": 1,\n \"a\": [\n  1,\n  2\n ]\n}");
  EXPECT_EQ(json_text(nlohmann::json(json)), R"({"a":[1,2],"b":1})");
}

TEST(JsonTextTest, BrokenUtf8BecomesTheReplacementCharacter) {
  EXPECT_EQ(json_text(nlohmann::json("a\xC3")), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(json_text(nlohmann::json("\xFF"
                                     "b")),
            "\"\xEF\xBF\xBD"
            "b\"");
}

}  // namespace
}  // namespace specdec
