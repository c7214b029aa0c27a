#include "core/tokenizers/byte_level_tokenizer.h"

#include <fmt/format.h>
#include <unicode/normalizer2.h>

#include <array>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "core/tokenizers/bpe_merges.h"
#include "core/tokenizers/byte_symbols.h"
#include "core/tokenizers/piece_matcher.h"
#include "core/tokenizers/pre_tokenizer.h"
#include "core/tokenizers/vocabulary_tokenizer.h"

namespace specdec {
namespace {

/// What each piece stands for.
std::vector<std::string> piece_bytes(const ByteLevelModel& model, const std::string& where) {
  std::vector<std::string> all(model.pieces.size());
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.type == PieceType::kUserDefined) {
      all[id] = piece.text;
    } else if (piece.type == PieceType::kNormal) {
      const auto bytes = from_byte_symbols(piece.text);
      if (!bytes) {
        throw WeightsError(
            fmt::format("{}: token {} is \"{}\", which is not spelled in the byte symbols of a "
                        "byte-level vocabulary.",
                        where, id, piece.text));
      }
      all[id] = *bytes;
    }
  }
  return all;
}

class ByteLevelTokenizer final : public VocabularyTokenizer {
 public:
  ByteLevelTokenizer(const ByteLevelModel& model, const std::string& where)
      : VocabularyTokenizer(model.pieces, piece_bytes(model, where),
                            {.bos = model.bos,
                             .eos = model.eos,
                             .adds_bos = model.adds_bos && model.bos.has_value(),
                             .chat_template = model.chat_template,
                             .chat_template_file = model.chat_template_file}),
        merges_(model.merges),
        pre_tokenizer_(model.patterns, where),
        ignore_merges_(model.ignore_merges),
        nfc_(model.nfc),
        unknown_(model.unknown) {
    for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
      byte_tokens_.at(byte) = find_normal(byte_symbols().at(byte)).value_or(kNone);
    }
    for (const AddedToken& token : model.added) {
      (token.normalized ? added_normalized_ : added_raw_).add(token.text, token.id);
    }
  }

  std::vector<Token> encode_after(TextStart /*start*/, std::string_view text) const override {
    check_length(text);
    std::vector<Token> tokens;
    for (const Utf8Run& run : utf8_runs(text)) {
      if (!run.valid) {
        const auto bytes = symbols(run.text);
        tokens.insert(tokens.end(), bytes.begin(), bytes.end());
        continue;
      }
      split_pieces(run.text, added_raw_, tokens, [&](std::string_view raw) {
        const std::string normalized = nfc_ ? composed(raw) : std::string(raw);
        split_pieces(normalized, added_normalized_, tokens,
                     [&](std::string_view plain) { encode_plain(plain, tokens); });
      });
    }
    return tokens;
  }

 private:
  static constexpr Token kNone = -1;

  std::optional<Token> find_normal(std::string_view piece) const {
    const auto found = vocabulary().find(piece);
    return found && vocabulary().type(*found) == PieceType::kNormal ? found : std::nullopt;
  }

  void encode_plain(std::string_view text, std::vector<Token>& tokens) const {
    for (const std::string_view stretch : pre_tokenizer_.split(text)) {
      const auto whole = ignore_merges_ ? find_normal(to_byte_symbols(stretch)) : std::nullopt;
      if (whole) {
        tokens.push_back(*whole);
      } else {
        merges_.join(symbols(stretch), tokens);
      }
    }
  }

  /// A token for each byte; none for bytes that the vocabulary has no symbol for, so that their
  /// neighbours meet, as in the `tokenizers` library.
  std::vector<Token> symbols(std::string_view bytes) const {
    std::vector<Token> all;
    all.reserve(bytes.size());
    for (const char byte : bytes) {
      const Token token = byte_tokens_.at(static_cast<unsigned char>(byte));
      if (token != kNone) {
        all.push_back(token);
      } else if (unknown_) {
        all.push_back(*unknown_);
      }
    }
    return all;
  }

  BpeMerges merges_;
  PreTokenizer pre_tokenizer_;
  PieceMatcher added_raw_;
  PieceMatcher added_normalized_;
  bool ignore_merges_, nfc_;
  std::optional<Token> unknown_;
  std::array<Token, 256> byte_tokens_{};
};

}  // namespace

std::string composed(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  std::string out;
  if (U_SUCCESS(status)) {
    icu::StringByteSink<std::string> sink(&out);
    nfc->normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink,
                       nullptr, status);
  }
  if (U_FAILURE(status)) {
    throw Error(fmt::format("ICU cannot compose a text (NFC): {}.", u_errorName(status)));
  }
  return out;
}

std::unique_ptr<Tokenizer> byte_level_tokenizer(const ByteLevelModel& model,
                                                const std::string& where) {
  return std::make_unique<ByteLevelTokenizer>(model, where);
}

}  // namespace specdec
