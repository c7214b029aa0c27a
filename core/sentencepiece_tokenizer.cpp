#include "core/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "core/vocabulary.h"

namespace specdec {
namespace {

// The library counts bytes in int, and normalising can make a text three times as long.
constexpr size_t kMaxTextBytes = size_t{1} << 29;

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view bytes, const std::string& where)
      : vocabulary_(parse_sentencepiece_model(bytes, where)) {
    const auto status = processor_.LoadFromSerializedProto(bytes);
    if (!status.ok()) {
      throw WeightsError(fmt::format("{}: SentencePiece refuses it: {}", where, status.ToString()));
    }
  }

  int64_t vocab_size() const override { return vocabulary_.size(); }
  std::string_view token_bytes(Token token) const override { return vocabulary_.bytes(token); }
  std::string_view piece(Token token) const override { return vocabulary_.piece(token); }
  std::optional<Token> find_piece(std::string_view piece) const override {
    return vocabulary_.find(piece);
  }
  std::optional<Token> bos() const override { return vocabulary_.model().bos; }
  std::optional<Token> eos() const override { return vocabulary_.model().eos; }

  std::vector<Token> encode(std::string_view text) const override {
    std::vector<Token> tokens;
    for (const Utf8Run& run : utf8_runs(text)) {
      if (run.valid) {
        encode_run(run.text, tokens);
      } else {  // the library would replace these bytes by U+FFFD
        for (const char byte : run.text) {
          tokens.push_back(vocabulary_.byte_token(static_cast<unsigned char>(byte)));
        }
      }
    }
    return tokens;
  }

 private:
  void encode_run(std::string_view text, std::vector<Token>& tokens) const {
    if (text.size() > kMaxTextBytes) {
      throw Error(fmt::format("a text of {} bytes is too long to encode at once; the limit is {}.",
                              text.size(), kMaxTextBytes));
    }
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok()) {
      throw Error("SentencePiece cannot encode a text: " + status.ToString());
    }
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  Vocabulary vocabulary_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string_view bytes,
                                                   const std::string& where) {
  return std::make_unique<SentencePieceTokenizer>(bytes, where);
}

}  // namespace specdec
