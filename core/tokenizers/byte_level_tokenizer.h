#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/sentencepiece_model.h"
#include "core/formats/tokenizer_json_reader.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// A byte-level BPE tokenizer (GPT-2's kind: Llama 3, Qwen, SmolLM2), from whatever file.
struct ByteLevelModel {
  /// Pieces by id. Normal ones are spelled in byte symbols (core/tokenizers/byte_symbols.h), others
  /// as they are; scores are 0, unused ids are kUnused.
  std::vector<SentencePiece> pieces;
  std::vector<AddedToken> added;      ///< user-defined pieces, and normal ones beside BPE
  std::vector<BpeMerge> merges;       ///< the earlier ones come first
  std::vector<std::string> patterns;  ///< of the PreTokenizer
  bool ignore_merges = false;         ///< a stretch that is a piece is taken as it is
  bool nfc = false;                   ///< text is composed (Unicode's NFC) first
  std::optional<Token> unknown;       ///< for bytes without a symbol; none = they are dropped
  std::optional<Token> bos, eos;
  bool adds_bos = false;
  std::string chat_template;       ///< jinja; "" = unknown
  std::string chat_template_file;  ///< that it was read from
};

/// Unicode's canonical composition (NFC) of a text that is UTF-8.
std::string composed(std::string_view text);

/// Ids are those of the `tokenizers` library with control pieces encoded as text; added tokens are
/// always recognised. Like it, the tokenizer drops bytes that the vocabulary has no
/// symbol for (SmolLM2: 21 of 256). Throws WeightsError naming `where`: a piece that is not
/// spelled in byte symbols, an expression that is not one.
std::unique_ptr<Tokenizer> byte_level_tokenizer(const ByteLevelModel& model,
                                                const std::string& where);

}  // namespace specdec
