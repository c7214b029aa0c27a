#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/tokenizer_config.h"
#include "core/types.h"

namespace specdec {

/// What a piece of a SentencePiece vocabulary is for; the values are those of the file format.
enum class PieceType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

/// One vocabulary entry; its id is its place.
struct SentencePiece {
  std::string text;  ///< UTF-8, "▁" (U+2581) for a space
  float score = 0.0F;
  PieceType type = PieceType::kNormal;
};

/// Where a tokenizer puts a space before a text that does not go on from other text.
enum class PrefixSpace : uint8_t {
  kNone,             ///< nowhere: Gemma
  kAlways,           ///< at every such place: Llama 2, Mistral 7B
  kUnlessSpace,      ///< where none is: tokenizer.json's Metaspace, prepend_scheme "always"
  kFirstUnlessSpace  ///< at the beginning of the input, where none is: prepend_scheme "first"
};

/// The content of a tokenizer.model file of Gemma's or Llama 2's kind: BPE with all 256 byte
/// pieces, no normalisation but " " to "▁", and perhaps a space put before the text.
struct SentencePieceModel {
  std::vector<SentencePiece> pieces;
  Token unk = 0;
  std::optional<Token> bos, eos, pad;
  PrefixSpace prefix_space = PrefixSpace::kNone;
  bool adds_bos = false;  ///< a text that a model is to read begins with <bos>, if there is one
};

/// Reads the bytes of a tokenizer.model file, which says nothing of <bos> before texts: it is there
/// unless `config` says otherwise. Throws WeightsError, naming `where`, when they are not a
/// SentencePiece model, are damaged, or describe another kind of tokenizer than these.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& where,
                                             const TokenizerConfig& config = {});

/// The value of a byte piece's text, "<0x0A>" -> 10.
std::optional<unsigned char> byte_piece_value(std::string_view piece);
/// Text of a byte piece: 10 -> "<0x0A>".
std::string byte_piece(unsigned char value);
/// `text` with every `from` replaced by `to`.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

/// U+2581, which stands for a space in pieces.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

}  // namespace specdec
