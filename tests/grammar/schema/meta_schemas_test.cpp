#include "grammar/schema/meta_schemas.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/schema/json_value.h"

namespace specdec {
namespace {

TEST(MetaSchemasTest, EachUnderItsOwnName) {
  for (const std::string uri :
       {"http://json-schema.org/draft-04/schema", "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema", "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2019-09/meta/core",
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2020-12/meta/format-annotation",
        "https://json-schema.org/draft/2020-12/meta/validation"}) {
    const auto text = meta_schema(uri);
    ASSERT_TRUE(text) << uri;
    const JsonValue schema = parse_json(*text, uri);
    const JsonValue* id = schema.find("$id") == nullptr ? schema.find("id") : schema.find("$id");
    ASSERT_NE(id, nullptr) << uri;
    EXPECT_EQ(id->text.substr(0, id->text.find('#')), uri);
  }
}

TEST(MetaSchemasTest, NoOthers) {
  for (const char* uri : {"", "https://json-schema.org/draft-07/schema",
                          "http://json-schema.org/draft/2020-12/schema", "draft-07/schema"}) {
    EXPECT_FALSE(meta_schema(uri)) << uri;
  }
}

}  // namespace
}  // namespace specdec
