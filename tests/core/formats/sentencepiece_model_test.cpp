#include "core/formats/sentencepiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/tokenizer_fixture.h"

namespace specdec {
namespace {

using ::testing::HasSubstr;

std::string model_complaint(const std::string& bytes) {
  return error_message<WeightsError>([&] { parse_sentencepiece_model(bytes, "t.model"); });
}

// A length-delimited field, short enough for lengths of one byte.
std::string field(int number, const std::string& content) {
  return std::string(1, static_cast<char>(number << 3 | 2)) +
         std::string(1, static_cast<char>(content.size())) + content;
}
std::string number_field(int number, int value) {
  return std::string(1, static_cast<char>(number << 3)) + std::string(1, static_cast<char>(value));
}

// A file of Gemma's kind whose parts a test replaces.
struct ModelFile {
  std::string extra_pieces;
  int byte_pieces = 256;
  std::string trainer = number_field(3, 2) + std::string("\x98\x02\x01", 3);  // BPE, byte fallback
  std::string normalizer = number_field(3, 0) + number_field(4, 0);

  std::string bytes() const {
    std::string all = field(1, field(1, "<unk>") + number_field(3, 2));
    for (int i = 0; i < byte_pieces; ++i) {
      all += field(1, field(1, byte_piece(static_cast<unsigned char>(i))) + number_field(3, 6));
    }
    return all + extra_pieces + field(2, trainer) + field(3, normalizer);
  }
};

TEST(SentencePieceModelTest, ReadsTheFixture) {
  const SentencePieceModel model =
      parse_sentencepiece_model(tokenizer_fixture("tokenizer.model"), "t.model");
  ASSERT_EQ(model.pieces.size(), 600U);
  EXPECT_EQ(model.pad, 0);
  EXPECT_EQ(model.eos, 1);
  EXPECT_EQ(model.bos, 2);
  EXPECT_EQ(model.unk, 3);
  EXPECT_EQ(model.pieces[4].text, "<start_of_turn>");
  EXPECT_EQ(model.pieces[4].type, PieceType::kUserDefined);
  EXPECT_EQ(model.pieces[6].text, "\n");
  EXPECT_EQ(model.pieces[18].text, "<0x00>");
  EXPECT_EQ(model.pieces[18].type, PieceType::kByte);
  EXPECT_GT(model.pieces[300].score, model.pieces[400].score);
}

TEST(SentencePieceModelTest, RefusesWhatIsNoModel) {
  EXPECT_EQ(model_complaint(ModelFile().bytes()), "no error");
  EXPECT_THAT(model_complaint(""), HasSubstr("no pieces"));
  EXPECT_THAT(model_complaint("hello, this is text"),
              HasSubstr("t.model: not a SentencePiece model"));
  EXPECT_THAT(model_complaint(std::string(20, '\xFF')), HasSubstr("not a SentencePiece model"));
}

TEST(SentencePieceModelTest, RefusesOtherKindsOfTokenizer) {
  const auto with = [](auto change) {
    ModelFile file;
    change(file);
    return model_complaint(file.bytes());
  };
  EXPECT_THAT(with([](auto& file) { file.trainer = std::string("\x98\x02\x01", 3); }),
              HasSubstr("not a BPE model"));
  EXPECT_THAT(with([](auto& file) { file.trainer = number_field(3, 2); }),
              HasSubstr("no byte fallback"));
  EXPECT_THAT(with([](auto& file) { file.normalizer = number_field(3, 0); }),
              HasSubstr("does not keep spaces"));
  EXPECT_THAT(with([](auto& file) { file.normalizer += field(2, "map"); }),
              HasSubstr("normalises characters"));
  EXPECT_THAT(with([](auto& file) { file.byte_pieces = 255; }), HasSubstr("255 byte pieces"));
}

TEST(SentencePieceModelTest, RefusesDamagedPieces) {
  const auto with_piece = [](const std::string& piece) {
    ModelFile file;
    file.extra_pieces = field(1, piece);
    return model_complaint(file.bytes());
  };
  EXPECT_EQ(with_piece(field(1, "a")), "no error");
  EXPECT_THAT(with_piece(""), HasSubstr("piece 257 is empty"));
  EXPECT_THAT(with_piece(field(1, "\xFF")), HasSubstr("not UTF-8"));
  EXPECT_THAT(with_piece(field(1, "a") + std::string("\x15\0\0\xC0\x7F", 5)),
              HasSubstr("no finite score"));
  EXPECT_THAT(with_piece(field(1, "a") + number_field(3, 5)), HasSubstr("type 5"));
  EXPECT_THAT(with_piece(field(1, "<unk>")), HasSubstr("comes twice"));
  EXPECT_THAT(with_piece(field(1, "byte") + number_field(3, 6)), HasSubstr("should be a byte"));
  EXPECT_THAT(with_piece(field(1, "<other>") + number_field(3, 2)), HasSubstr("2 unknown pieces"));
}

TEST(SentencePieceModelTest, TruncationNeverCrashes) {
  const std::string bytes = tokenizer_fixture("tokenizer.model");
  for (size_t length = 0; length < bytes.size(); length += 7) {
    EXPECT_NE(model_complaint(bytes.substr(0, length)), "no error") << length;
  }
}

TEST(SentencePieceModelTest, BytePieces) {
  EXPECT_EQ(byte_piece_value("<0x0A>"), 10);
  EXPECT_EQ(byte_piece_value("<0xFF>"), 255);
  for (const char* other : {"", "<0x0a>", "<0x0A", "<0x0A>>", "<0xG0>", "<1x0A>"}) {
    EXPECT_EQ(byte_piece_value(other), std::nullopt) << other;
  }
  EXPECT_EQ(byte_piece(10), "<0x0A>");
}

TEST(SentencePieceModelTest, ReplaceAll) {
  EXPECT_EQ(replace_all("a b  c ", " ", kSpaceMark), "a▁b▁▁c▁");
  EXPECT_EQ(replace_all("", " ", "x"), "");
  EXPECT_EQ(replace_all("aaa", "aa", "b"), "ba");
}

}  // namespace
}  // namespace specdec
