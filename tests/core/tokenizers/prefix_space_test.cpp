#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/chat.h"
#include "core/error.h"
#include "core/formats/strict_json.h"
#include "core/formats/tokenizer_json.h"
#include "core/formats/tokenizer_json_reader.h"
#include "core/formats/tokenizer_json_sax.h"
#include "core/tokenizers/bpe_tokenizer.h"
#include "core/tokenizers/gguf_tokenizer.h"
#include "core/tokenizers/sentencepiece_tokenizer.h"
#include "core/tokenizers/special_encoder.h"
#include "core/tokenizers/tokenizer_files.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tokenizer_fixture.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kModel = "llama2/tokenizer.model";
constexpr const char* kJson = "llama2/tokenizer.json";

/// tokenizer.json with the space put before texts by Metaspace.
std::string metaspace_json(const json& scheme, const json& split = false) {
  json root = json::parse(tokenizer_fixture(kJson));
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", kSpaceMark},
                           {"prepend_scheme", scheme},
                           {"split", split}};
  return root.dump();
}

/// The GGUF metadata that a model's files become, but for one key.
GgufMetadata made_metadata(SentencePieceModel model, const std::string& without = "") {
  TokenizerFiles files;
  files.bos = model.bos;
  files.eos = model.eos;
  files.adds_bos = model.adds_bos;
  const auto size = static_cast<int64_t>(model.pieces.size());
  files.model = std::move(model);
  GgufEntries entries;
  add_gguf_tokenizer(files, size, "here", entries);
  GgufMetadata metadata("made");
  for (const auto& [key, value] : entries) {
    std::visit(
        [&, name = key](const auto& one) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(one)>, std::vector<bool>>) {
            if (name != without) {
              metadata.add(name, one);
            }
          }
        },
        value);
  }
  return metadata;
}

/// The tokenizer of that metadata.
std::unique_ptr<Tokenizer> through_gguf(SentencePieceModel model) {
  return gguf_tokenizer(made_metadata(std::move(model)));
}

struct Kind {
  const char* name;
  const char* ids;      ///< key of the reference's ids
  const char* special;  ///< the same with control pieces recognised
  std::unique_ptr<Tokenizer> (*load)();
};

SentencePieceModel sentencepiece() {
  return parse_sentencepiece_model(tokenizer_fixture(kModel), "t.model");
}

/// A Metaspace tokenizer, read from what is written of it.
std::unique_ptr<Tokenizer> rewritten(const char* scheme) {
  const BpeModel read =
      parse_tokenizer_json(split_tokenizer_json(metaspace_json(scheme), "t.json"), "t.json");
  SentencePieceModel model = sentencepiece();
  model.prefix_space = read.vocabulary.prefix_space;
  return bpe_tokenizer(tokenizer_json(model), "written");
}

const Kind kKinds[] = {
    {"model", "ids", "special",
     [] { return sentencepiece_tokenizer(tokenizer_fixture(kModel), "t.model"); }},
    {"json", "ids", "special", [] { return bpe_tokenizer(tokenizer_fixture(kJson), "t.json"); }},
    {"written_json", "ids", "special",
     [] { return bpe_tokenizer(tokenizer_json(sentencepiece()), "written"); }},
    {"gguf", "ids", "special", [] { return through_gguf(sentencepiece()); }},
    {"always", "always", "special_always",
     [] { return bpe_tokenizer(metaspace_json("always"), "t.json"); }},
    {"first", "first", "special_first",
     [] { return bpe_tokenizer(metaspace_json("first"), "t.json"); }},
    {"written_always", "always", "special_always", [] { return rewritten("always"); }},
    {"written_first", "first", "special_first", [] { return rewritten("first"); }},
};

class PrefixSpaceTest : public testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = GetParam().load();
};
INSTANTIATE_TEST_SUITE_P(All, PrefixSpaceTest, testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PrefixSpaceTest, GivesTheIdsOfTheReferenceLibraries) {
  const SpecialEncoder special(*tokenizer_);
  std::istringstream lines(tokenizer_fixture("llama2/expected.jsonl"));
  int rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    const json row = json::parse(line);
    const auto text = row["text"].get<std::string>();
    const auto wanted = [&row](const char* key) { return row[key].get<std::vector<Token>>(); };
    EXPECT_EQ(tokenizer_->encode(text), wanted(GetParam().ids)) << testing::PrintToString(text);
    EXPECT_EQ(special.encode(text), wanted(GetParam().special)) << testing::PrintToString(text);
  }
  EXPECT_GT(rows, 80);
}

TEST_P(PrefixSpaceTest, KnowsItsControlPieces) {
  EXPECT_EQ(tokenizer_->bos(), 1);
  EXPECT_EQ(tokenizer_->eos(), 2);
  for (const Token control : {0, 1, 2, 3}) {
    EXPECT_EQ(tokenizer_->token_bytes(control), "") << tokenizer_->piece(control);
  }
  EXPECT_EQ(tokenizer_->piece(3), "[INST]");
}

TEST_P(PrefixSpaceTest, TextThatGoesOnHasNone) {
  std::mt19937 random(11);
  const std::vector<std::string> parts = {"the", " ",    "e",    "\n",    "é",
                                          "日",  "\xFF", "\xC3", "[INST]"};
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (uint32_t left = random() % 12; left > 0; --left) {
      text += parts[random() % parts.size()];
    }
    const auto ids = tokenizer_->encode_after(TextStart::kContinued, text);
    EXPECT_EQ(tokenizer_->decode(ids), text) << testing::PrintToString(text);
    const bool spaced = std::string(GetParam().ids) != "ids" && text.starts_with(" ");
    EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(text)),
              text.empty() || spaced ? text : " " + text)
        << testing::PrintToString(text);
  }
}

TEST_P(PrefixSpaceTest, TurnsOfAChatHaveIt) {
  const bool first_only = std::string(GetParam().ids) == "first";
  const auto ids = tokenizer_->encode_after(TextStart::kAfterControl, "the friend");
  EXPECT_EQ(tokenizer_->decode(ids), first_only ? "the friend" : " the friend");
}

/// The tokenizer.json with one more token, which is looked for in the normalised text.
std::string with_normalized_token(json root, const std::string& content) {
  const size_t id = root["model"]["vocab"].size();
  root["added_tokens"].push_back(
      {{"id", id}, {"content", content}, {"normalized", true}, {"special", false}});
  return root.dump();
}

// Found as in the library, which puts the space before the token's own text too.
TEST(NormalizedTokenTest, IsFoundBehindSpacesWhereTheNormalizerPrepends) {
  const auto tokenizer =
      bpe_tokenizer(with_normalized_token(json::parse(tokenizer_fixture(kJson)), "<t>"), "t.json");
  const auto plain = bpe_tokenizer(tokenizer_fixture(kJson), "t.json");
  const Token added = *tokenizer->find_piece("<t>");
  auto expected = plain->encode("the");
  expected.push_back(added);
  for (const Token token : plain->encode_after(TextStart::kContinued, "e")) {
    expected.push_back(token);
  }
  EXPECT_EQ(tokenizer->encode("the <t>e"), expected);
  EXPECT_EQ(tokenizer->encode("<t>").front(), added);
  EXPECT_EQ(tokenizer->encode("the<t>e"), plain->encode("the<t>e"));
  EXPECT_FALSE(tokenizer->merge_rules().has_value());
}

TEST(NormalizedTokenTest, IsFoundAnywhereBeforeMetaspace) {
  const json metaspace = json::parse(metaspace_json("first"));
  const auto tokenizer = bpe_tokenizer(with_normalized_token(metaspace, "<t>"), "t.json");
  EXPECT_THAT(tokenizer->encode("the<t>e"), testing::Contains(*tokenizer->find_piece("<t>")));
  EXPECT_THAT(error_message<WeightsError>(
                  [&] { (void)bpe_tokenizer(with_normalized_token(metaspace, "a b"), "t.json"); }),
              HasSubstr("the added token \"a b\" is \"normalized\" and has spaces"));
}

std::string metaspace_complaint(const std::string& text) {
  return error_message<WeightsError>([&] { (void)bpe_tokenizer(text, "t.json"); });
}

TEST(PrefixSpaceErrorTest, OtherWaysToPutItAreNamed) {
  EXPECT_EQ(metaspace_complaint(metaspace_json("never")), "no error");
  EXPECT_THAT(metaspace_complaint(metaspace_json("last")),
              HasSubstr("pre_tokenizer.prepend_scheme \"last\" is not supported; known: "
                        "\"always\", \"first\", \"never\""));
  EXPECT_THAT(metaspace_complaint(metaspace_json("first", true)), HasSubstr("split true"));
  json root = json::parse(tokenizer_fixture(kJson));
  root["normalizer"]["normalizers"][0]["prepend"] = "_";
  EXPECT_THAT(metaspace_complaint(root.dump()), HasSubstr("normalizer Sequence is not supported"));
  root["normalizer"] = nullptr;
  EXPECT_THAT(metaspace_complaint(root.dump()), HasSubstr("normalizer null is not supported"));
  root = json::parse(metaspace_json("first"));
  root["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}};
  EXPECT_THAT(metaspace_complaint(root.dump()),
              HasSubstr("Metaspace where the normalizer is null"));
}

TEST(GgufSentencePieceTest, AddBosTokenIsReadAndConverted) {
  EXPECT_TRUE(
      gguf_tokenizer(made_metadata(sentencepiece(), "tokenizer.ggml.add_bos_token"))->adds_bos());
  for (const bool adds : {true, false}) {
    SentencePieceModel model = sentencepiece();
    model.adds_bos = adds;
    GgufMetadata metadata = made_metadata(model);
    metadata.add("tokenizer.ggml.bos_token_id", int64_t{*model.bos});
    EXPECT_EQ(gguf_tokenizer(metadata)->adds_bos(), adds);
    const TemporaryFolder folder;
    write_tokenizer_files(*read_tokenizer_files(metadata), folder.path());
    EXPECT_EQ(load_tokenizer(folder.path())->adds_bos(), adds);
    const json config = json::parse(read_file(folder.path() / "tokenizer_config.json"));
    EXPECT_EQ(config["add_bos_token"], adds);
    const json text = json::parse(read_file(folder.path() / "tokenizer.json"));
    EXPECT_EQ(text["post_processor"].is_null(), !adds);
  }
}

TEST(GgufSentencePieceTest, TheUnknownPieceIsFoundByItsType) {
  const std::string key = "tokenizer.ggml.unknown_token_id";
  EXPECT_EQ(gguf_sentencepiece(made_metadata(sentencepiece(), key)).unk, sentencepiece().unk);
  SentencePieceModel model = sentencepiece();
  model.pieces[static_cast<size_t>(model.unk)].type = PieceType::kControl;
  EXPECT_EQ(gguf_sentencepiece(made_metadata(model)).unk, model.unk);
  EXPECT_THAT(
      error_message<WeightsError>([&] { (void)gguf_sentencepiece(made_metadata(model, key)); }),
      HasSubstr("'tokenizer.ggml.unknown_token_id' is missing, and 'tokenizer.ggml.token_type' has "
                "no token of the type 2"));
}

TEST(GgufSentencePieceTest, UnusedPiecesMayBeEmptyOrStandTwice) {
  SentencePieceModel model = sentencepiece();
  const auto plain = through_gguf(model);
  const auto size = static_cast<Token>(model.pieces.size());
  for (const char* text : {"", "e", "\u65e5", "[PAD]"}) {  // the vocabulary has no such character
    model.pieces.push_back({.text = text, .score = 0.0F, .type = PieceType::kUnused});
  }
  model.pieces.push_back({.text = "<turn>", .score = 0.0F, .type = PieceType::kUserDefined});
  const auto tokenizer = through_gguf(model);
  EXPECT_EQ(tokenizer->find_piece("<turn>"), size + 4);
  for (Token unused = size; unused < size + 4; ++unused) {
    EXPECT_EQ(tokenizer->piece(unused), "");
    EXPECT_EQ(tokenizer->token_bytes(unused), "");
  }
  EXPECT_EQ(tokenizer->encode("the e\u65e5[PAD]"), plain->encode("the e\u65e5[PAD]"));
  const TemporaryFolder folder;
  write_tokenizer_files(*read_tokenizer_files(made_metadata(model)), folder.path());
  EXPECT_EQ(load_tokenizer(folder.path())->find_piece("<turn>"), size + 4);
}

// Unused pieces with which GGUF fills vocabularies up.
TEST(GgufSentencePieceTest, UnusedPiecesAtTheEndMakeNoOtherVocabulary) {
  SentencePieceModel model = sentencepiece();
  const auto plain = sentencepiece_tokenizer(tokenizer_fixture(kModel), "t.model");
  model.pieces.push_back({.text = "[PAD]", .score = 0.0F, .type = PieceType::kUnused});
  std::string reason;
  EXPECT_TRUE(same_vocabulary(*plain, *through_gguf(model), reason)) << reason;
  EXPECT_TRUE(same_vocabulary(*through_gguf(model), *plain, reason)) << reason;
  model.pieces.push_back({.text = "<turn>", .score = 0.0F, .type = PieceType::kUserDefined});
  EXPECT_FALSE(same_vocabulary(*plain, *through_gguf(model), reason));
}

TEST(PrefixSpaceErrorTest, GgufHasNoWordForMetaspace) {
  SentencePieceModel model = sentencepiece();
  model.prefix_space = PrefixSpace::kFirstUnlessSpace;
  EXPECT_THAT(error_message<WeightsError>([&] { (void)through_gguf(model); }),
              HasSubstr("Put the checkpoint's tokenizer.model beside it"));
}

}  // namespace
}  // namespace specdec
