#include "core/tokenizers/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/chat.h"
#include "core/error.h"
#include "core/formats/strict_json.h"
#include "core/formats/tokenizer_json.h"
#include "core/tokenizers/bpe_tokenizer.h"
#include "core/tokenizers/sentencepiece_tokenizer.h"
#include "tests/support/error_message.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kSource = SPECDEC_SOURCE_DIR;
const std::filesystem::path kFixture = kSource / "tests/data/tokenizer";

// The published vocabularies, which are too large to ship.
std::filesystem::path published_tokenizer(const std::string& name) {
  const char* shared = std::getenv("SPECDEC_SHARED");
  return (shared != nullptr ? std::filesystem::path(shared) : kSource / "../shared") /
         "tokenizers" / name;
}

struct Expected {
  std::string text;
  std::vector<Token> ids;
};

std::vector<Expected> expected_ids(const std::string& name) {
  std::ifstream lines(kFixture / name);
  std::vector<Expected> all;
  for (std::string line; std::getline(lines, line);) {
    const auto value = nlohmann::json::parse(line);
    all.push_back({value["text"].get<std::string>(), value["ids"].get<std::vector<Token>>()});
  }
  return all;
}

// Random texts over characters that meet the vocabulary's edges, and plain random bytes.
std::vector<std::string> random_texts(int count) {
  const std::vector<std::string> parts = {"a",
                                          "e",
                                          "l",
                                          "t",
                                          "th",
                                          "the",
                                          " ",
                                          "  ",
                                          "\n",
                                          "\t",
                                          "\r",
                                          "0",
                                          "7",
                                          "é",
                                          "日",
                                          "😀",
                                          "\"",
                                          "{",
                                          "}",
                                          "<",
                                          ">",
                                          "<start_of_turn>",
                                          "end_of_turn>",
                                          "<bos>",
                                          "▁",
                                          "\xC3",
                                          "\xFF",
                                          std::string(1, '\0')};
  std::mt19937 random(7);
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (uint32_t left = random() % 40; left > 0; --left) {
      const uint32_t pick = random();
      text += i % 4 == 0 ? std::string(1, static_cast<char>(pick)) : parts[pick % parts.size()];
    }
    texts.push_back(text);
  }
  return texts;
}

// Begin and end of a file of the corpus, long enough for every common piece to occur.
std::string corpus_sample(const std::string& name, size_t bytes) {
  gzFile file = gzopen((kSource / "models/corpus" / name).c_str(), "rb");  // reads plain files too
  std::string text(bytes, '\0');
  const int count = gzread(file, text.data(), static_cast<unsigned>(bytes));
  gzclose(file);
  EXPECT_EQ(count, static_cast<int>(bytes)) << name;
  return text;
}

void expect_same_ids(const Tokenizer& a, const Tokenizer& b, const std::string& text) {
  const auto ids = a.encode(text);
  EXPECT_EQ(ids, b.encode(text)) << testing::PrintToString(text.substr(0, 100));
  if (text.find(kSpaceMark) == std::string::npos) {
    EXPECT_EQ(a.decode(ids), text);
    EXPECT_EQ(b.decode(ids), text);
  }
}

class BothTokenizers : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(kFixture / GetParam());
};
INSTANTIATE_TEST_SUITE_P(TokenizerTest, BothTokenizers,
                         ::testing::Values("tokenizer.model", "tokenizer.json"),
                         [](const auto& info) { return std::string(info.param).substr(10); });

TEST_P(BothTokenizers, GivesTheIdsOfTheReferenceLibraries) {
  const auto all = expected_ids("expected.jsonl");
  ASSERT_GT(all.size(), 90U);
  for (const Expected& expected : all) {
    EXPECT_EQ(tokenizer_->encode(expected.text), expected.ids)
        << testing::PrintToString(expected.text);
  }
}

TEST_P(BothTokenizers, KnowsItsPieces) {
  EXPECT_EQ(tokenizer_->vocab_size(), 600);
  EXPECT_EQ(tokenizer_->bos(), 2);
  EXPECT_EQ(tokenizer_->eos(), 1);
  EXPECT_EQ(tokenizer_->find_piece("<start_of_turn>"), 4);
  EXPECT_EQ(tokenizer_->find_piece("<pad>"), 0);
  EXPECT_EQ(tokenizer_->find_piece("no such piece"), std::nullopt);
  EXPECT_EQ(tokenizer_->piece(3), "<unk>");
  for (Token token = 0; token < tokenizer_->vocab_size(); ++token) {
    EXPECT_EQ(tokenizer_->find_piece(tokenizer_->piece(token)), token);
  }
}

TEST_P(BothTokenizers, TokensStandForTheirBytes) {
  EXPECT_EQ(tokenizer_->token_bytes(2), "") << "control";
  EXPECT_EQ(tokenizer_->token_bytes(3), "") << "unknown";
  EXPECT_EQ(tokenizer_->token_bytes(4), "<start_of_turn>");
  const auto byte = tokenizer_->find_piece("<0xFF>");
  ASSERT_TRUE(byte.has_value());
  EXPECT_EQ(tokenizer_->token_bytes(*byte), "\xFF");
  EXPECT_EQ(tokenizer_->token_bytes(*tokenizer_->find_piece("<0x00>")), std::string(1, '\0'));
  EXPECT_EQ(tokenizer_->token_bytes(*tokenizer_->find_piece("▁the")), " the");
  EXPECT_EQ(tokenizer_->token_bytes(*tokenizer_->find_piece("▁▁▁")), "   ");
}

TEST_P(BothTokenizers, IdsOutsideTheVocabularyStandForNothing) {
  for (const Token token : {-1, 600, 262'143}) {
    EXPECT_EQ(tokenizer_->token_bytes(token), "");
    EXPECT_EQ(tokenizer_->piece(token), "");
  }
}

TEST_P(BothTokenizers, ControlPiecesInATextAreText) {
  for (const char* text : {"<bos>", "<eos>", "<pad>", "<unk>", "<0x41>"}) {
    const auto ids = tokenizer_->encode(text);
    EXPECT_GT(ids.size(), 1U) << text;
    EXPECT_EQ(tokenizer_->decode(ids), text);
  }
}

TEST_P(BothTokenizers, BytesThatAreNotUtf8SurviveTheRoundTrip) {
  const std::string text = "a\xFF\xC3 b\xE2\x82";
  const auto ids = tokenizer_->encode(text);
  EXPECT_EQ(tokenizer_->decode(ids), text);
  EXPECT_THAT(ids, testing::Contains(*tokenizer_->find_piece("<0xFF>")));
}

TEST_P(BothTokenizers, ChatTurnsAreThoseOfTheTemplate) {
  const auto ids = encode_chat(*tokenizer_, {{"user", " Hi there! \n"}, {"model", "Yes."}});
  std::vector<Token> expected = tokenizer_->encode(
      "<start_of_turn>user\nHi there!<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>\n"
      "<start_of_turn>model\n");
  expected.insert(expected.begin(), 2);
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(encode_chat(*tokenizer_, {}).size(), tokenizer_->encode("model\n").size() + 2);
  EXPECT_THAT(error_message<Error>([&] {
                encode_chat(*tokenizer_, {{"system", "x"}});
              }),
              HasSubstr("user and model take turns, the user first"));
}

TEST_P(BothTokenizers, StreamingNeverSplitsACharacter) {
  StreamingDecoder decoder(*tokenizer_);
  const auto byte = [&](const char* piece) { return *tokenizer_->find_piece(piece); };
  EXPECT_EQ(decoder.push(byte("<0xE2>")), "");
  EXPECT_EQ(decoder.push(byte("<0x82>")), "");
  EXPECT_EQ(decoder.push(2), "") << "control tokens change nothing";
  EXPECT_EQ(decoder.push(byte("<0xAC>")), "€");
  EXPECT_EQ(decoder.push(byte("<0xE2>")), "");
  EXPECT_EQ(decoder.push(byte("▁the")), "\uFFFD the") << "the character never came";
  EXPECT_EQ(decoder.push(byte("<0xFF>")), "\uFFFD");
  EXPECT_EQ(decoder.push(byte("<0xF0>")), "");
  EXPECT_EQ(decoder.push(byte("<0x9F>")), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST_P(BothTokenizers, StreamedTextIsTheDecodedText) {
  const std::string text = "Zoë: 日本 😀 {\"a\": 1}\n";
  StreamingDecoder decoder(*tokenizer_);
  std::string streamed;
  for (const Token token : tokenizer_->encode(text)) {
    streamed += decoder.push(token);
  }
  EXPECT_EQ(streamed + decoder.finish(), text);
}

TEST(TokenizerTest, BothFormatsGiveTheSameIds) {
  const auto a = load_tokenizer(kFixture / "tokenizer.model");
  const auto b = load_tokenizer(kFixture / "tokenizer.json");
  std::string reason;
  EXPECT_TRUE(same_vocabulary(*a, *b, reason)) << reason;
  for (const std::string& text : random_texts(1500)) {
    expect_same_ids(*a, *b, text);
  }
  for (const char* file : {"shakespeare.txt.gz", "us_presidents.txt.gz", "records.jsonl.gz"}) {
    expect_same_ids(*a, *b, corpus_sample(file, 30'000));
  }
}

TEST(TokenizerTest, LongRunsTakeNoQuadraticTime) {
  const auto tokenizer = load_tokenizer(kFixture / "tokenizer.json");
  const std::string text(300'000, 'e');  // a quadratic search would take minutes
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(TokenizerTest, AFolderIsReadPreferringAModelFileThatIsOne) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_message<WeightsError>([&] { load_tokenizer(folder.path()); }),
              HasSubstr("neither tokenizer.model nor tokenizer.json"));
  folder.write("tokenizer.json", read_file(kFixture / "tokenizer.json"));
  EXPECT_EQ(load_tokenizer(folder.path())->vocab_size(), 600);
  const auto text = [](const Tokenizer& tokenizer) { return tokenizer.encode("the <turn>"); };
  const auto from_json = text(*load_tokenizer(folder.path()));
  folder.write("tokenizer.model", "IQ== 0\nIg== 1\n");  // tiktoken's, as Llama 3 has it
  EXPECT_EQ(text(*load_tokenizer(folder.path())), from_json);
  std::filesystem::remove(folder.path() / "tokenizer.json");
  EXPECT_THAT(error_message<WeightsError>([&] { load_tokenizer(folder.path()); }),
              HasSubstr("tokenizer.model: not a SentencePiece model"));
  folder.write("tokenizer.model", read_file(kFixture / "tokenizer.model"));
  folder.write("tokenizer.json", "no JSON");
  EXPECT_EQ(load_tokenizer(folder.path())->vocab_size(), 600);
}

TEST(TokenizerTest, TokensThatTheJsonFileAddsAreNotLost) {
  auto root = nlohmann::json::parse(read_file(kFixture / "tokenizer.json"));
  root["added_tokens"].push_back(
      {{"id", 600}, {"content", "<turn>"}, {"normalized", false}, {"special", false}});
  const TemporaryFolder folder;
  folder.write("tokenizer.model", read_file(kFixture / "tokenizer.model"));
  folder.write("tokenizer.json", root.dump());
  const auto added = [&] { return load_tokenizer(folder.path())->find_piece("<turn>"); };
  EXPECT_EQ(added(), 600);
  // Gemma 3 1B's file has a token for images beyond the model's vocabulary.
  folder.write("config.json", R"({"vocab_size": 600})");
  EXPECT_EQ(added(), std::nullopt);
  folder.write("config.json", R"({"text_config": {"vocab_size": 640}})");
  EXPECT_EQ(added(), 600);
}

TEST(TokenizerTest, PiecesBeyondTheModelsVocabularyAreLeftOut) {
  auto root = nlohmann::json::parse(read_file(kFixture / "tokenizer.json"));
  const int64_t size = load_tokenizer(kFixture / "tokenizer.json")->vocab_size();
  root["added_tokens"].push_back({{"id", size}, {"content", "<more>"}, {"special", true}});
  const TemporaryFolder folder;
  folder.write("tokenizer.json", root.dump());
  folder.write("config.json", fmt::format(R"({{"vocab_size": {}}})", size));
  std::vector<std::string> notes;
  EXPECT_EQ(load_tokenizer(folder.path(), &notes)->vocab_size(), size);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0], AllOf(HasSubstr(fmt::format("has {} entries", size)),
                              HasSubstr("left out: \"<more>\"")));
  folder.write("config.json", fmt::format(R"({{"vocab_size": {}}})", size + 1));
  notes.clear();
  EXPECT_EQ(load_tokenizer(folder.path(), &notes)->vocab_size(), size + 1);
  EXPECT_TRUE(notes.empty());
}

TEST(TokenizerTest, SpecialTokensMapNamesWhatTheConfigLeavesOpen) {
  const TemporaryFolder folder;
  folder.write("tokenizer.model", read_file(kFixture / "tokenizer.model"));
  folder.write("special_tokens_map.json", R"({"eos_token": {"content": "<start_of_turn>"}})");
  EXPECT_EQ(load_tokenizer(folder.path())->eos(), 4);
  folder.write("tokenizer_config.json", R"({"eos_token": "<eos>"})");
  EXPECT_NE(load_tokenizer(folder.path())->eos(), 4);
}

TEST(TokenizerTest, FilesAreToldApartByTheirContent) {
  const TemporaryFolder folder;
  EXPECT_EQ(load_tokenizer(folder.write("a", read_file(kFixture / "tokenizer.json")))->vocab_size(),
            600);
  EXPECT_EQ(
      load_tokenizer(folder.write("b", read_file(kFixture / "tokenizer.model")))->vocab_size(),
      600);
  EXPECT_THAT(
      error_message<WeightsError>([&] { load_tokenizer(folder.write("c.json", "\n  [1,")); }),
      HasSubstr("c.json:2:6: not valid JSON"));
  EXPECT_THAT(error_message<WeightsError>([&] { load_tokenizer(folder.path() / "none"); }),
              HasSubstr("no such file"));
}

TEST(TokenizerTest, SameVocabularyNamesTheFirstDifference) {
  const auto a = load_tokenizer(kFixture / "tokenizer.model");
  auto root = nlohmann::json::parse(read_file(kFixture / "tokenizer.json"));
  root["added_tokens"][4]["content"] = "<turn>";
  root["model"]["vocab"].erase("<start_of_turn>");
  root["model"]["vocab"]["<turn>"] = 4;
  const auto b = bpe_tokenizer(root.dump(), "b");
  std::string reason;
  EXPECT_FALSE(same_vocabulary(*a, *b, reason));
  EXPECT_THAT(reason, HasSubstr("token 4 is \"<start_of_turn>\" in one and \"<turn>\""));
  EXPECT_THAT(error_message<Error>([&] { encode_chat(*b, {}); }),
              HasSubstr("no piece <start_of_turn>"));
  root["model"]["vocab"]["more"] = 600;
  EXPECT_FALSE(same_vocabulary(*a, *bpe_tokenizer(root.dump(), "b"), reason));
  EXPECT_THAT(reason, HasSubstr("600 pieces, the other 601"));
}

// Google's file marks runs of spaces as not normalised, so they are never found in a text of plain
// spaces; the library then falls back on merges, and so must we.
TEST(TokenizerTest, AddedTokensAreLookedForBeforeOrAfterNormalising) {
  auto root = nlohmann::json::parse(read_file(kFixture / "tokenizer.json"));
  for (auto& token : root["added_tokens"]) {
    token["normalized"] = false;
  }
  const auto raw = bpe_tokenizer(root.dump(), "raw");
  const auto normalized = load_tokenizer(kFixture / "tokenizer.json");
  const Token space = *raw->find_piece("▁");
  EXPECT_THAT(raw->encode("   "), ElementsAre(space, space, space));
  EXPECT_THAT(normalized->encode("   "), ElementsAre(*raw->find_piece("▁▁▁")));
  EXPECT_EQ(raw->encode("\n\n"), normalized->encode("\n\n"));
}

class PublishedTokenizer : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(TokenizerTest, PublishedTokenizer, ::testing::Values("gemma2", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(PublishedTokenizer, BothFormatsGiveTheReferenceIds) {
  const auto path = published_tokenizer(std::string(GetParam()) + ".model");
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << path << " is not there; SPECDEC_SHARED names the folder that has tokenizers/";
  }
  const std::string bytes = read_file(path);
  const auto a = sentencepiece_tokenizer(bytes, path.string());
  const auto b = bpe_tokenizer(tokenizer_json(parse_sentencepiece_model(bytes, "model")), "json");
  EXPECT_GE(a->vocab_size(), 256'000);
  std::string reason;
  EXPECT_TRUE(same_vocabulary(*a, *b, reason)) << reason;
  for (const Expected& expected : expected_ids(std::string(GetParam()) + "_expected.jsonl")) {
    EXPECT_EQ(a->encode(expected.text), expected.ids) << testing::PrintToString(expected.text);
    EXPECT_EQ(b->encode(expected.text), expected.ids) << testing::PrintToString(expected.text);
  }
  for (const std::string& text : random_texts(600)) {
    expect_same_ids(*a, *b, text);
  }
  for (const char* file : {"shakespeare.txt.gz", "us_presidents.txt.gz", "records.jsonl.gz"}) {
    expect_same_ids(*a, *b, corpus_sample(file, 40'000));
  }
}

}  // namespace
}  // namespace specdec
