#include "grammar/schema/schema_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "grammar/schema/uri.h"
#include "tests/support/error_message.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;

/// RFC 3986, section 5.4, with the strict readings.
TEST(SchemaDocumentTest, ResolvesUris) {
  constexpr const char* kBase = "http://a/b/c/d;p?q";
  constexpr std::array<std::pair<const char*, const char*>, 42> kExamples = {{
      {"g:h", "g:h"},
      {"g", "http://a/b/c/g"},
      {"./g", "http://a/b/c/g"},
      {"g/", "http://a/b/c/g/"},
      {"/g", "http://a/g"},
      {"//g", "http://g"},
      {"?y", "http://a/b/c/d;p?y"},
      {"g?y", "http://a/b/c/g?y"},
      {"#s", "http://a/b/c/d;p?q#s"},
      {"g#s", "http://a/b/c/g#s"},
      {"g?y#s", "http://a/b/c/g?y#s"},
      {";x", "http://a/b/c/;x"},
      {"g;x", "http://a/b/c/g;x"},
      {"g;x?y#s", "http://a/b/c/g;x?y#s"},
      {"", "http://a/b/c/d;p?q"},
      {".", "http://a/b/c/"},
      {"./", "http://a/b/c/"},
      {"..", "http://a/b/"},
      {"../", "http://a/b/"},
      {"../g", "http://a/b/g"},
      {"../..", "http://a/"},
      {"../../", "http://a/"},
      {"../../g", "http://a/g"},
      {"../../../g", "http://a/g"},
      {"../../../../g", "http://a/g"},
      {"/./g", "http://a/g"},
      {"/../g", "http://a/g"},
      {"g.", "http://a/b/c/g."},
      {".g", "http://a/b/c/.g"},
      {"g..", "http://a/b/c/g.."},
      {"..g", "http://a/b/c/..g"},
      {"./../g", "http://a/b/g"},
      {"./g/.", "http://a/b/c/g/"},
      {"g/./h", "http://a/b/c/g/h"},
      {"g/../h", "http://a/b/c/h"},
      {"g;x=1/./y", "http://a/b/c/g;x=1/y"},
      {"g;x=1/../y", "http://a/b/c/y"},
      {"g?y/./x", "http://a/b/c/g?y/./x"},
      {"g?y/../x", "http://a/b/c/g?y/../x"},
      {"g#s/./x", "http://a/b/c/g#s/./x"},
      {"g#s/../x", "http://a/b/c/g#s/../x"},
      {"http:g", "http:g"},
  }};
  for (const auto& [reference, expected] : kExamples) {
    EXPECT_EQ(resolve_uri(kBase, reference), expected) << "'" << reference << "'";
  }
}

TEST(SchemaDocumentTest, ResolvesFromOtherBases) {
  EXPECT_EQ(resolve_uri("", "a/b#c"), "a/b#c");
  EXPECT_EQ(resolve_uri("", "#c"), "#c");
  EXPECT_EQ(resolve_uri("http://a", "g"), "http://a/g");
  EXPECT_EQ(resolve_uri("http://a/b", ""), "http://a/b");
  EXPECT_EQ(resolve_uri("http://a/b#x", "#y"), "http://a/b#y");
  EXPECT_EQ(resolve_uri("urn:example:a", "#y"), "urn:example:a#y");
  EXPECT_EQ(resolve_uri("http://a/b//c/d", "g"), "http://a/b//c/g");
  EXPECT_EQ(resolve_uri("http://a/b/c", "urn:x:y"), "urn:x:y");
  EXPECT_EQ(resolve_uri("tree.json", "node.json#a"), "node.json#a");
}

JsonValue parse(std::string_view text) { return parse_json(text, "schema"); }

std::string document_error(std::string_view schema, const char* reference = nullptr) {
  return error_message<GrammarError>([&] {
    SchemaDocument document(parse(schema), {});
    if (reference != nullptr) {
      document.resolve(document.root(), reference);
    }
  });
}

TEST(SchemaDocumentTest, Errors) {
  EXPECT_THAT(document_error(R"({"$schema": "http://json-schema.org/draft-03/schema#"})"),
              HasSubstr("$schema: 'http://json-schema.org/draft-03/schema#' is not known"));
  EXPECT_THAT(document_error(R"({"$schema": 5})"), HasSubstr("$schema: must be a string"));
  EXPECT_THAT(
      document_error(R"({"$defs": {"a": {"$id": "http://x/a"}, "b": {"$id": "http://x/a"}}})"),
      HasSubstr("two subschemas have the $id 'http://x/a'"));
  EXPECT_THAT(document_error(R"({"$defs": {"a": {"$anchor": "n"}, "b": {"$anchor": "n"}}})"),
              HasSubstr("anchor 'n'"));
  EXPECT_THAT(document_error("{}", "#/a"), HasSubstr("'#/a' names nothing"));
  EXPECT_THAT(document_error("{}", "#a"), HasSubstr("#a"));
  EXPECT_THAT(document_error("{}", "http://x/y.json"), HasSubstr("registry"));
  EXPECT_THAT(document_error(R"({"$defs": {"a": 3}})", "#/$defs/a"),
              HasSubstr("must be an object or a boolean"));
  EXPECT_THAT(document_error(R"({"allOf": [{}]})", "#/allOf/1"), HasSubstr("names nothing"));
  EXPECT_THAT(document_error(R"({"allOf": [{}]})", "#/allOf/x"), HasSubstr("names nothing"));
}

TEST(SchemaDocumentTest, FindsByPointerAnchorAndId) {
  SchemaDocument document(parse(R"({
    "$id": "http://x/root.json",
    "$defs": {
      "a/b~c": {"title": "odd"},
      "per%cent": {"title": "per"},
      "n": {"$anchor": "here", "title": "anchored"},
      "e": {"$id": "sub/e.json", "title": "embedded", "$defs": {"i": {"title": "inner"}}}
    }})"),
                          {});
  const auto title = [&](const char* reference) {
    return document.value(document.resolve(document.root(), reference)).find("title")->text;
  };
  EXPECT_EQ(title("#/$defs/a~1b~0c"), "odd");
  EXPECT_EQ(title("#/%24defs/per%25cent"), "per");
  EXPECT_EQ(title("#here"), "anchored");
  EXPECT_EQ(title("root.json#here"), "anchored");
  EXPECT_EQ(title("sub/e.json"), "embedded");
  EXPECT_EQ(title("http://x/sub/e.json#/$defs/i"), "inner");
  EXPECT_EQ(title("#/$defs/e/$defs/i"), "inner");
  const SchemaNode inner = document.resolve(document.root(), "sub/e.json#/$defs/i");
  EXPECT_EQ(document.location(inner), "http://x/sub/e.json#/$defs/i");
  EXPECT_NE(document.resource(inner), document.resource(document.root()));
  EXPECT_EQ(document.resolve(inner, "#"), document.resolve(document.root(), "sub/e.json"));
}

TEST(SchemaDocumentTest, MetaSchemasInACircleAreRefused) {
  const auto error = [](std::vector<std::pair<std::string, std::string>> documents) {
    SchemaRegistry registry;
    for (const auto& [uri, text] : documents) {
      registry.add(uri, text);
    }
    return error_message<GrammarError>(
        [&] { SchemaDocument(parse(R"({"$schema": "http://m/a"})"), registry); });
  };
  EXPECT_THAT(error({{"http://m/a", R"({"$schema": "http://m/a"})"}}), HasSubstr("circle"));
  EXPECT_THAT(error({{"http://m/a", R"({"$schema": "http://m/b"})"},
                     {"http://m/b", R"({"$schema": "http://m/a"})"}}),
              HasSubstr("circle"));
  EXPECT_THAT(error({{"http://m/a", R"({"$vocabulary": 5})"}}),
              HasSubstr("http://m/a#/$vocabulary: must be an object"));
}

TEST(SchemaDocumentTest, RegistryIsReadWhenNamed) {
  SchemaDocument document(parse(R"({"$id": "http://x/a"})"),
                          {{"http://x/b", R"({"title": "b", "$ref": "c"})"},
                           {"http://x/broken", "[]"},
                           {"http://x/no-json", "{"}});
  const SchemaNode b = document.resolve(document.root(), "b");
  EXPECT_EQ(document.value(b).find("title")->text, "b");
  EXPECT_THAT(error_message<GrammarError>([&] { document.resolve(b, "c"); }),
              HasSubstr("'c' is not in the schema"));
  EXPECT_THAT(error_message<GrammarError>([&] { document.resolve(b, "broken"); }),
              HasSubstr("is not a schema"));
  EXPECT_THAT(error_message<GrammarError>([&] { document.resolve(b, "no-json"); }),
              HasSubstr("http://x/no-json:1:"));
}

TEST(SchemaDocumentTest, Drafts) {
  const auto draft = [](const std::string& uri) {
    SchemaDocument document(parse(R"({"$schema": ")" + uri + "\"}"), {});
    return document.draft(document.root());
  };
  EXPECT_EQ(draft("http://json-schema.org/draft-04/schema#"), SchemaDraft::kDraft4);
  EXPECT_EQ(draft("http://json-schema.org/draft-06/schema"), SchemaDraft::kDraft6);
  EXPECT_EQ(draft("https://json-schema.org/draft-07/schema#"), SchemaDraft::kDraft7);
  EXPECT_EQ(draft("https://json-schema.org/draft/2019-09/schema"), SchemaDraft::k2019);
  for (const char* newest : {"http://json-schema.org/schema", "http://json-schema.org/schema#",
                             "https://json-schema.org/schema#"}) {
    EXPECT_EQ(draft(newest), SchemaDraft::k2020) << newest;
  }
  EXPECT_EQ(draft("https://json-schema.org/draft/2020-12/schema"), SchemaDraft::k2020);
}

}  // namespace
}  // namespace specdec
