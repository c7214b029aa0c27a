#include "core/formats/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/formats/tokenizer_json_reader.h"
#include "core/formats/tokenizer_json_sax.h"
#include "tests/support/error_message.h"
#include "tests/support/tokenizer_fixture.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string text_complaint(const std::string& text) {
  return error_message<WeightsError>(
      [&] { parse_tokenizer_json(split_tokenizer_json(text, "t.json"), "t.json"); });
}

// What is said of the fixture with one value replaced, or removed when `value` is discarded.
std::string complaint(const std::string& pointer, const json& value) {
  json root = json::parse(tokenizer_fixture("tokenizer.json"));
  const json::json_pointer place(pointer);
  if (value.is_discarded()) {
    root.at(place.parent_pointer()).erase(place.back());
  } else {
    root[place] = value;
  }
  const std::string message = text_complaint(root.dump());
  EXPECT_THAT(message, testing::AnyOf(StartsWith("t.json"), testing::Eq("no error")));
  return message;
}
const json kRemoved(json::value_t::discarded);

TEST(TokenizerJsonTest, WritesTheFixture) {
  const auto model = parse_sentencepiece_model(tokenizer_fixture("tokenizer.model"), "t.model");
  EXPECT_EQ(tokenizer_json(model), tokenizer_fixture("tokenizer.json"));
  EXPECT_EQ(tokenizer_config_json(model), tokenizer_fixture("tokenizer_config.json"));
}

TEST(TokenizerJsonTest, ReadsBackThePieces) {
  const auto model = parse_sentencepiece_model(tokenizer_fixture("tokenizer.model"), "t.model");
  const BpeModel read = parse_tokenizer_json(
      split_tokenizer_json(tokenizer_fixture("tokenizer.json"), "t.json"), "t.json");
  ASSERT_EQ(read.vocabulary.pieces.size(), model.pieces.size());
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    EXPECT_EQ(read.vocabulary.pieces[i].text, model.pieces[i].text);
    EXPECT_EQ(read.vocabulary.pieces[i].type, model.pieces[i].type) << model.pieces[i].text;
  }
  EXPECT_EQ(read.vocabulary.bos, model.bos);
  EXPECT_EQ(read.vocabulary.eos, model.eos);
  EXPECT_EQ(read.vocabulary.pad, model.pad);
  EXPECT_EQ(read.vocabulary.unk, model.unk);
  EXPECT_EQ(read.added.size(), 14U) << "user-defined pieces only";
  for (const BpeMerge& merge : read.merges) {
    const auto text = [&](Token id) {
      return read.vocabulary.pieces[static_cast<size_t>(id)].text;
    };
    EXPECT_EQ(text(merge.left) + text(merge.right), text(merge.result));
  }
}

TEST(TokenizerJsonTest, ReadsMergesOfTheOldForm) {
  json root = json::parse(tokenizer_fixture("tokenizer.json"));
  for (json& merge : root["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const BpeModel old_form =
      parse_tokenizer_json(split_tokenizer_json(root.dump(), "t.json"), "t.json");
  const BpeModel new_form = parse_tokenizer_json(
      split_tokenizer_json(tokenizer_fixture("tokenizer.json"), "t.json"), "t.json");
  ASSERT_EQ(old_form.merges.size(), new_form.merges.size());
  for (size_t i = 0; i < old_form.merges.size(); ++i) {
    EXPECT_EQ(old_form.merges[i].left, new_form.merges[i].left);
    EXPECT_EQ(old_form.merges[i].right, new_form.merges[i].right);
  }
}

TEST(TokenizerJsonTest, RefusesWhatIsNoTokenizer) {
  EXPECT_THAT(text_complaint("{\n\"model\": {\"vocab\": {\"a\" 1}}}"),
              StartsWith("t.json:2:25: not valid JSON"));
  EXPECT_THAT(text_complaint(""), StartsWith("t.json:1:1: not valid JSON"));
  EXPECT_THAT(text_complaint("[]"), HasSubstr("array, not an object"));
  EXPECT_THAT(text_complaint("3"), HasSubstr("number, not an object"));
  EXPECT_THAT(text_complaint("{}"), HasSubstr("no \"model\" object"));
  EXPECT_THAT(text_complaint(std::string(100'000, '[')), HasSubstr("levels deep"));
  EXPECT_THAT(text_complaint(R"({"a":1,"a":2})"), HasSubstr("\"a\" stands twice"));
  EXPECT_THAT(text_complaint(R"({"model":{"vocab":{},"vocab":{}}})"),
              HasSubstr("\"vocab\" stands twice"));
  EXPECT_THAT(complaint("/model/vocab", kRemoved), HasSubstr("no \"model.vocab\" object."));
  EXPECT_THAT(complaint("/model/merges", kRemoved), HasSubstr("no \"model.merges\" array."));
  EXPECT_THAT(complaint("/model/unk_token", kRemoved), HasSubstr("\"model.unk_token\""));
}

TEST(TokenizerJsonTest, NamesWhatIsNotSupported) {
  EXPECT_THAT(complaint("/model/type", "Unigram"), HasSubstr("model.type \"Unigram\""));
  EXPECT_THAT(complaint("/model/byte_fallback", false), HasSubstr("model.byte_fallback"));
  EXPECT_THAT(complaint("/model/ignore_merges", true), HasSubstr("model.ignore_merges"));
  EXPECT_THAT(complaint("/model/dropout", 0.1), HasSubstr("model.dropout 0.1"));
  EXPECT_THAT(complaint("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(complaint("/normalizer", {{"type", "NFKC"}}), HasSubstr("normalizer NFKC"));
  EXPECT_THAT(complaint("/normalizer", nullptr), HasSubstr("normalizer null"));
  EXPECT_THAT(complaint("/pre_tokenizer", {{"type", "ByteLevel"}}),
              HasSubstr("pre_tokenizer ByteLevel"));
  EXPECT_THAT(complaint("/added_tokens/0/lstrip", true),
              AllOf(HasSubstr("added_tokens[0]"), HasSubstr("lstrip")));
  EXPECT_EQ(complaint("/pre_tokenizer", nullptr), "no error");
  EXPECT_EQ(complaint("/model/type", kRemoved), "no error") << "old files have none";
}

TEST(TokenizerJsonTest, RefusesWrongVocabularies) {
  EXPECT_THAT(complaint("/model/vocab/<0x0A>", kRemoved), HasSubstr("255 of the 256 byte pieces"));
  EXPECT_THAT(complaint("/model/unk_token", "<no>"), HasSubstr("not the unknown piece \"<no>\""));
  EXPECT_THAT(complaint("/model/vocab/new", -1), HasSubstr("\"new\" is not a whole number"));
  EXPECT_THAT(complaint("/model/vocab/new", 1.5), HasSubstr("\"new\" is not a whole number"));
  EXPECT_THAT(complaint("/model/vocab/new", json::object()), HasSubstr("not a whole number"));
  EXPECT_THAT(complaint("/model/vocab/new", 300), HasSubstr("id 300 has two pieces"));
  EXPECT_THAT(complaint("/model/vocab/new", 601), HasSubstr("no piece has the id 600"));
  EXPECT_THAT(complaint("/model/vocab/new", 1'000'000'000'000), HasSubstr("without gaps"));
  EXPECT_EQ(complaint("/model/vocab/new", 600), "no error");
  std::string twice = tokenizer_fixture("tokenizer.json");
  twice.insert(twice.find("\"vocab\":{") + 9, "\"<pad>\":0,");
  EXPECT_THAT(text_complaint(twice), HasSubstr("\"<pad>\" stands twice"));
}

TEST(TokenizerJsonTest, RefusesWrongAddedTokens) {
  EXPECT_THAT(complaint("/added_tokens", 3), HasSubstr("added_tokens is not an array"));
  EXPECT_THAT(complaint("/added_tokens/1", 3), HasSubstr("added_tokens[1]"));
  EXPECT_THAT(complaint("/added_tokens/1/id", -3), HasSubstr("added_tokens[1]"));
  EXPECT_THAT(complaint("/added_tokens/1/special", 0),
              HasSubstr("added_tokens[1]: \"special\" must be true or false, but is 0"));
  EXPECT_THAT(complaint("/post_processor", 3), HasSubstr("post_processor must be an object or"));
  EXPECT_THAT(complaint("/added_tokens/1/id", 7), HasSubstr("\"<eos>\" has two ids, 1 and 7"));
  const json extra = {{"id", 600}, {"content", "<image>"}, {"special", true}};
  EXPECT_EQ(complaint("/added_tokens/-", extra), "no error")
      << "ids may go on after the vocabulary";
  const json two = {{{"id", 601}, {"content", "<b>"}}, {{"id", 600}, {"content", "<a>"}}};
  EXPECT_THAT(complaint("/added_tokens", two),
              HasSubstr("\"<a>\" with id 600: it stands behind one with a higher id"));
}

TEST(TokenizerJsonTest, RefusesWrongMerges) {
  EXPECT_THAT(complaint("/model/merges/0", "nospace"), HasSubstr("merge 0 (\"nospace\")"));
  EXPECT_THAT(complaint("/model/merges/0", "a b c"), HasSubstr("merge 0"));
  EXPECT_THAT(complaint("/model/merges/1", json::array({"a"})), HasSubstr("has 1 parts"));
  EXPECT_THAT(complaint("/model/merges/1", 3), HasSubstr("merge 1 is neither"));
  EXPECT_THAT(complaint("/model/merges/1", json::array({"a", 3})), HasSubstr("merge 1 is neither"));
  EXPECT_THAT(complaint("/model/merges/1", json::array({"qqq", "a"})), HasSubstr("\"qqq\""));
  EXPECT_THAT(complaint("/model/merges/1", json::array({"e", "\n"})), HasSubstr("\"e\n\""));
}

TEST(TokenizerJsonTest, TheLastAddedIdIsReadUpToTheEndOfTheList) {
  EXPECT_EQ(last_added_id(R"({"id":9,"added_tokens":[{"id":3,"n":{"id":8}},{"id":2}],"model":{)"),
            3U);
  EXPECT_EQ(last_added_id(R"({"model":{"added_tokens":[{"id":7}]},"added_tokens":[{"id":1}]})"),
            1U);
  EXPECT_EQ(last_added_id(R"({"added_tokens":[],"model":{"id":5}})"), std::nullopt);
  EXPECT_EQ(last_added_id(R"({"added_tokens":[{"id":-1},{"id":"2"},[4]]})"), std::nullopt);
  EXPECT_EQ(last_added_id("no JSON"), std::nullopt);
}

}  // namespace
}  // namespace specdec
