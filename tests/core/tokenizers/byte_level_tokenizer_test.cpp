// Byte-level BPE from GGUF metadata and from tokenizer.json; the ids are llama.cpp's and the
// `tokenizers` library's. The 49,152 pieces of SmolLM2: tests/core/families/gguf/.
#include "core/tokenizers/byte_level_tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "core/error.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/strict_json.h"
#include "core/tokenizers/byte_level_json.h"
#include "core/tokenizers/byte_symbols.h"
#include "core/tokenizers/gguf_tokenizer.h"
#include "core/tokenizers/pre_tokenizer.h"
#include "core/tokenizers/special_encoder.h"
#include "core/tokenizers/tokenizer_files.h"
#include "tests/support/error_message.h"
#include "tests/support/small_byte_level_model.h"
#include "tests/support/temporary_folder.h"

namespace specdec {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kSmallGgufs =
    std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/data/gguf";

TEST(ByteSymbolsTest, AreInvertible) {
  EXPECT_EQ(to_byte_symbols("a \n"), "a\u0120\u010A");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    all += static_cast<char>(byte);
  }
  EXPECT_EQ(from_byte_symbols(to_byte_symbols(all)), all);
  EXPECT_EQ(from_byte_symbols("\u4e2d"), std::nullopt);
}

std::vector<std::string_view> cut(const char* name, std::string_view text) {
  return PreTokenizer(find_pre_tokenizer(name)->patterns, "test").split(text);
}

TEST(PreTokenizerTest, SmolLmCutsDigitsFirst) {
  EXPECT_THAT(cut("smollm", "a  1"), ElementsAre("a", "  ", "1"));
  EXPECT_THAT(cut("smollm", " 12"), ElementsAre(" ", "1", "2"));
  EXPECT_THAT(cut("smollm", "it's  so"), ElementsAre("it", "'s", " ", " so"));
  EXPECT_THAT(cut("smollm", "\u00bd\u216b"), ElementsAre("\u00bd", "\u216b"));
  EXPECT_THAT(cut("smollm", ""), ElementsAre());
}

TEST(PreTokenizerTest, Llama3AndQwenDifferInNumbers) {
  EXPECT_THAT(cut("llama-bpe", "It'S 12345.\r\n\n x"),
              ElementsAre("It", "'S", " ", "123", "45", ".\r\n\n", " x"));
  EXPECT_THAT(cut("qwen2", "1234"), ElementsAre("1", "2", "3", "4"));
}

TEST(PreTokenizerTest, SpacesAreUnicodes) {
  EXPECT_THAT(cut("smollm", "\u3000\u3000a"), ElementsAre("\u3000", "\u3000", "a"));
  // U+180E has been no space since Unicode 6.3: it is cut like punctuation.
  EXPECT_THAT(cut("smollm", "!\u180e"), ElementsAre("!\u180e"));
}

TEST(PreTokenizerTest, LongStretchesAreNoProblem) {
  const std::string spaces(300000, ' ');
  EXPECT_THAT(cut("llama-bpe", spaces + "x"),
              ElementsAre(std::string_view(spaces).substr(1), " x"));
}

TEST(PreTokenizerTest, NoExpressionIsAnError) {
  EXPECT_THAT(error_message<WeightsError>([] { PreTokenizer({"(a"}, "t.json"); }),
              HasSubstr("t.json: the pre-tokenizer's expression \"(a\" cannot be used"));
}

class SmallGgufTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string path_ = (kSmallGgufs / GetParam()).string();
  const GgufFile file_{path_ + ".gguf"};
  const json cases_ = json::parse(read_file(path_ + ".tokenizer.json"))["cases"];
};

TEST_P(SmallGgufTest, IdsEqualLlamaCpps) {
  const auto tokenizer = load_tokenizer(path_ + ".gguf");
  const SpecialEncoder special(*tokenizer);
  for (const json& one : cases_) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(special.encode(text), one["ids"].get<std::vector<Token>>()) << text;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

/// The tokenizer.json that says what the metadata does.
json as_json(const GgufMetadata& metadata) {
  const bool llama3 = metadata.text("tokenizer.ggml.pre") == "llama-bpe";
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", !llama3}};
  const json first =
      llama3 ? json{{"type", "Split"},
                    {"pattern", {{"Regex", find_pre_tokenizer("llama-bpe")->patterns[0]}}},
                    {"behavior", "Isolated"},
                    {"invert", false}}
             : json{{"type", "Digits"}, {"individual_digits", true}};
  json root = {{"pre_tokenizer",
                {{"type", "Sequence"}, {"pretokenizers", json::array({first, byte_level})}}},
               {"model", {{"type", "BPE"}, {"ignore_merges", llama3}, {"vocab", json::object()}}},
               {"added_tokens", json::array()}};
  const auto& tokens = metadata.texts("tokenizer.ggml.tokens");
  for (size_t id = 0; id < tokens.size(); ++id) {
    const bool control = metadata.integers("tokenizer.ggml.token_type")[id] == 3;
    if (control) {
      root["added_tokens"].push_back({{"id", id}, {"content", tokens[id]}, {"special", true}});
    } else {
      root["model"]["vocab"][tokens[id]] = id;
    }
  }
  root["model"]["merges"] = metadata.texts("tokenizer.ggml.merges");
  return root;
}

TEST_P(SmallGgufTest, ATokenizerJsonGivesTheSame) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", as_json(file_.metadata()).dump());
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"},
                   "chat_template": "<|im_start|>"})");
  const auto tokenizer = load_tokenizer(folder.path());
  const SpecialEncoder special(*tokenizer);
  for (const json& one : cases_) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(special.encode(text), one["ids"].get<std::vector<Token>>()) << text;
  }
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->chat_template(), "<|im_start|>");
}

INSTANTIATE_TEST_SUITE_P(All, SmallGgufTest, ::testing::Values("llama-f16", "llama-q4_1"),
                         [](const auto& info) {
                           return std::string(info.param) == "llama-f16" ? "llama3" : "smollm";
                         });

TEST(ByteLevelTokenizerTest, BytesWithoutASymbolAreDroppedAndTheirNeighboursMeet) {
  const auto tokenizer = byte_level_tokenizer(small_byte_level_model({}, "\x04"), "test");
  EXPECT_THAT(tokenizer->encode("\x04"), ElementsAre());
  EXPECT_THAT(tokenizer->encode("a\x04"), ElementsAre('a'));
  EXPECT_EQ(tokenizer->piece(4), "");
}

TEST(ByteLevelTokenizerTest, BytesThatAreNotUtf8AreTheirSymbols) {
  const auto tokenizer = byte_level_tokenizer(small_byte_level_model({}), "test");
  EXPECT_THAT(tokenizer->encode("a\xFF\xFE"), ElementsAre('a', 255, 254));
}

TEST(ByteLevelTokenizerTest, UserDefinedPiecesAreFoundControlPiecesAreText) {
  const auto tokenizer = byte_level_tokenizer(small_byte_level_model({"<end>"}), "test");
  EXPECT_THAT(tokenizer->encode("ab<tool>ab"), ElementsAre(256, 257, 256));
  EXPECT_THAT(tokenizer->encode("<end>"), ElementsAre('<', 'e', 'n', 'd', '>'));
  EXPECT_THAT(SpecialEncoder(*tokenizer).encode("ab<end>"), ElementsAre(256, 258));
  EXPECT_EQ(tokenizer->token_bytes(258), "");
  EXPECT_EQ(tokenizer->token_bytes(257), "<tool>");
}

TEST(ByteLevelTokenizerTest, NfcComposesText) {
  ByteLevelModel model = small_byte_level_model({});
  EXPECT_EQ(byte_level_tokenizer(model, "test")->encode("e\u0301").size(), 3U);
  model.nfc = true;
  EXPECT_THAT(byte_level_tokenizer(model, "test")->encode("e\u0301"), ElementsAre(0xC3, 0xA9));
}

TEST(ByteLevelTokenizerTest, IgnoreMergesTakesWholePieces) {
  ByteLevelModel model = small_byte_level_model({});
  model.pieces.push_back({.text = "xyz"});
  EXPECT_THAT(byte_level_tokenizer(model, "test")->encode("xyz"), ElementsAre('x', 'y', 'z'));
  model.ignore_merges = true;
  EXPECT_THAT(byte_level_tokenizer(model, "test")->encode("xyz"), ElementsAre(258));
}

TEST(ByteLevelTokenizerTest, PiecesInOtherCharactersAreErrors) {
  ByteLevelModel model = small_byte_level_model({});
  model.pieces.push_back({.text = "\u4e2d"});
  EXPECT_THAT(error_message<WeightsError>([&] { byte_level_tokenizer(model, "t.json"); }),
              HasSubstr("t.json: token 258 is \"\u4e2d\""));
}

std::string json_complaint(const std::function<void(json&)>& change) {
  json root = as_json(GgufFile(kSmallGgufs / "llama-q4_1.gguf").metadata());
  change(root);
  return error_message<WeightsError>(
      [&] { parse_byte_level_json(split_tokenizer_json(root.dump(), "t.json"), {}, "t.json"); });
}

TEST(ByteLevelJsonTest, WhatIsNotSupportedIsNamed) {
  EXPECT_EQ(json_complaint([](json&) {}), "no error");
  EXPECT_THAT(json_complaint([](json& root) { root["model"]["type"] = "Unigram"; }),
              HasSubstr("t.json: model.type \"Unigram\" is not supported"));
  EXPECT_THAT(json_complaint([](json& root) {
                root["normalizer"] = {{"type", "Lowercase"}};
              }),
              HasSubstr("normalizer \"Lowercase\""));
  EXPECT_THAT(json_complaint([](json& root) {
                root["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Metaspace"}});
              }),
              HasSubstr("pre_tokenizer \"Metaspace\" is not supported"));
  EXPECT_THAT(json_complaint([](json& root) {
                root["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
              }),
              HasSubstr("add_prefix_space"));
  EXPECT_THAT(json_complaint([](json& root) { root["model"]["merges"][0] = "q q"; }),
              HasSubstr("model.merges: merge 0 needs the piece \"qq\""));
  EXPECT_THAT(json_complaint([](json& root) { root["added_tokens"][0]["id"] = 7; }),
              HasSubstr("id 7 has two pieces"));
}

/// The model of the small tokenizer.json with added tokens: content, id, normalized.
ByteLevelModel with_added(const std::vector<std::tuple<std::string, int, bool>>& added,
                          bool nfc = false) {
  ByteLevelModel model = small_byte_level_model({});
  model.nfc = nfc;
  json root = json::parse(byte_level_json(model));
  for (const auto& [content, id, normalized] : added) {
    root["added_tokens"].push_back(
        {{"id", id}, {"content", content}, {"normalized", normalized}, {"special", false}});
  }
  const std::string text = root.dump();
  return parse_byte_level_json(split_tokenizer_json(text, "t.json"), {}, "t.json");
}

// Expected ids are the library's.
TEST(AddedTokensTest, ThoseThatBpeMakesTooKeepTheirBytes) {
  const auto tokenizer = byte_level_tokenizer(
      with_added({{"\u00e9", 0xE9, false}, {"\u0120", ' ', false}, {"ab", 256, false}}), "test");
  EXPECT_THAT(tokenizer->encode("\u00e9"), ElementsAre(0xE9));
  EXPECT_THAT(tokenizer->encode("\u90e8"), ElementsAre(0xE9, 0x83, 0xA8));
  EXPECT_THAT(tokenizer->encode("a b\u0120"), ElementsAre('a', ' ', 'b', ' '));
  EXPECT_THAT(tokenizer->encode("aab"), ElementsAre('a', 256));
  EXPECT_EQ(tokenizer->token_bytes(0xE9), "\xE9");
  EXPECT_EQ(tokenizer->token_bytes(' '), " ");
}

TEST(AddedTokensTest, NormalizedOnesAreFoundInTheComposedText) {
  const auto composed_text =
      byte_level_tokenizer(with_added({{"n\u0300", 258, true}}, true), "test");
  EXPECT_THAT(composed_text->encode("n\u0300x\u01f9"), ElementsAre(258, 'x', 258));
  const auto raw = byte_level_tokenizer(with_added({{"\u01f9", 258, false}}, true), "test");
  EXPECT_THAT(raw->encode("n\u0300\u01f9"), ElementsAre(0xC7, 0xB9, 258));
}

TEST(AddedTokensTest, OthersAreFoundBeforeNormalizedOnes) {
  const auto tokenizer =
      byte_level_tokenizer(with_added({{"xy", 258, true}, {"yz", 259, false}}), "test");
  EXPECT_THAT(tokenizer->encode("xyz xy"), ElementsAre('x', 259, ' ', 258));
}

TEST(AddedTokensTest, AreWrittenAsTheyAreRead) {
  const ByteLevelModel model =
      with_added({{"\u00e9", 0xE9, false}, {"xy", 258, true}, {"na\u00efve", 259, false}});
  const std::string text = byte_level_json(model);
  const ByteLevelModel again =
      parse_byte_level_json(split_tokenizer_json(text, "t.json"), {}, "t.json");
  EXPECT_EQ(byte_level_json(again), text);
  EXPECT_EQ(byte_level_tokenizer(again, "test")->token_bytes(259), "na\u00efve");
}

TEST(AddedTokensTest, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(
      error_message<WeightsError>([] {
        (void)with_added({{"\u01f9", 258, true}, {"n\u0300", 259, true}}, true);
      }),
      HasSubstr("the added tokens 258 and 259 are both \"\u01f9\" once they are normalised"));
  EXPECT_THAT(json_complaint([](json& root) {
                root["added_tokens"].push_back(
                    {{"id", root["model"]["vocab"]["z"]}, {"content", "z"}, {"special", true}});
              }),
              HasSubstr("(\"z\"): a special token that is also the symbol of a byte"));
  const auto gguf = [](const ByteLevelModel& model) {
    TokenizerFiles files;
    files.model = model;
    GgufEntries entries;
    return error_message<WeightsError>([&] { add_gguf_tokenizer(files, 300, "m", entries); });
  };
  EXPECT_EQ(gguf(with_added({{"xy", 258, false}}, true)), "no error");
  EXPECT_THAT(
      gguf(with_added({{"\u00e9", 0xE9, false}}, true)),
      HasSubstr("m: the added token \"\u00e9\" is also what BPE makes of bytes, which GGUF"));
  EXPECT_THAT(gguf(with_added({{"xy", 258, true}}, true)), HasSubstr("composed text (NFC)"));
}

TEST(ByteLevelTokenizerTest, BytePiecesStandForNothing) {
  ByteLevelModel model = small_byte_level_model({});
  model.pieces.push_back({.text = "<0x41>", .score = 0.0F, .type = PieceType::kByte});
  const auto tokenizer = byte_level_tokenizer(model, "test");
  EXPECT_EQ(tokenizer->token_bytes(static_cast<Token>(model.pieces.size() - 1)), "");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("<0x41>")), "<0x41>");
}

TEST(PreTokenizerTest, LlamaCppsOtherNamesAreKnown) {
  for (const auto& [alias, name] : {std::pair{"llama3", "llama-bpe"},
                                    {"llama-v3", "llama-bpe"},
                                    {"deepseek-r1-qwen", "qwen2"},
                                    {"tekken", "tekken"}}) {
    const NamedPreTokenizer* other = find_pre_tokenizer(alias);
    ASSERT_NE(other, nullptr) << alias;
    EXPECT_EQ(other->adds_bos, find_pre_tokenizer(name)->adds_bos) << alias;
    const auto* written = find_pre_tokenizer(other->patterns, other->ignore_merges, other->nfc);
    EXPECT_STREQ(written->name, name);
  }
}

TEST(PreTokenizerTest, TekkenSplitsAtCapitals) {
  const PreTokenizer tekken(find_pre_tokenizer("tekken")->patterns, "t");
  EXPECT_THAT(tekken.split("camelCase ABCdef 12 a/b\n"),
              testing::ElementsAre("camel", "Case", " ABCdef", " ", "1", "2", " a", "/b", "\n"));
}

std::string gguf_tokenizer_complaint(const std::function<void(GgufMetadata&)>& change) {
  GgufMetadata metadata = GgufFile(kSmallGgufs / "llama-q4_1.gguf").metadata();
  change(metadata);
  return error_message<WeightsError>([&] { gguf_tokenizer(metadata); });
}

TEST(GgufTokenizerTest, WhatIsWrongNamesTheKey) {
  EXPECT_EQ(gguf_tokenizer_complaint([](GgufMetadata&) {}), "no error");
  const auto with = [](const char* key, const GgufValue& value) {
    return gguf_tokenizer_complaint([&](GgufMetadata& metadata) { metadata.add(key, value); });
  };
  EXPECT_THAT(with("tokenizer.ggml.model", std::string("bert")),
              HasSubstr("'tokenizer.ggml.model' is 'bert', which is not supported; known: gpt2"));
  EXPECT_THAT(with("tokenizer.ggml.pre", std::string("default")),
              HasSubstr("'tokenizer.ggml.pre' is 'default', which is not supported; known: smollm, "
                        "llama-bpe, qwen2"));
  EXPECT_THAT(with("tokenizer.ggml.token_type", std::vector<int64_t>{1, 2}),
              HasSubstr("'tokenizer.ggml.token_type' has 2 entries, but 'tokenizer.ggml.tokens' "
                        "has 292"));
  for (const auto& [type, name] : {std::pair{2, "unknown"}, {6, "byte"}}) {
    std::vector<int64_t> types(292, 1);
    types[7] = type;
    EXPECT_THAT(with("tokenizer.ggml.token_type", types),
                HasSubstr(fmt::format(
                    "'tokenizer.ggml.token_type' has the type {} ({}) for token 7", type, name)));
  }
  EXPECT_THAT(with("tokenizer.ggml.merges", std::vector<std::string>{"qq"}),
              HasSubstr("not two pieces"));
  EXPECT_THAT(with("tokenizer.ggml.merges", std::vector<std::string>{"q q"}),
              HasSubstr("needs the piece \"qq\" for merge 0"));
  EXPECT_THAT(with("tokenizer.ggml.eos_token_id", int64_t{5000}),
              HasSubstr("'tokenizer.ggml.eos_token_id' is 5000"));
  EXPECT_THAT(with("tokenizer.ggml.tokens", std::vector<std::string>(292, "a")),
              HasSubstr("has \"a\" twice"));
  EXPECT_THAT(with("tokenizer.ggml.tokens", std::vector<std::string>(292, "\xE1")),
              HasSubstr("'tokenizer.ggml.tokens' has a token 0 that is not UTF-8"));
}

}  // namespace
}  // namespace specdec
