#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/tokenizer_config.h"
#include "core/tokenizers/tokenizer.h"
#include "core/tokenizers/vocabulary.h"

namespace specdec {

/// What stands around the texts that a model reads.
struct InputMarks {
  std::optional<Token> bos, eos;
  bool adds_bos = false;
  std::string chat_template = {};       ///< jinja; "" = none
  std::string chat_template_file = {};  ///< that it was read from
};

/// What all tokenizers answer alike: pieces and their bytes, <bos> and <eos>, the chat template.
class VocabularyTokenizer : public Tokenizer {
 public:
  int64_t vocab_size() const final { return vocabulary_.size(); }
  std::string_view token_bytes(Token token) const final { return vocabulary_.bytes(token); }
  std::string_view piece(Token token) const final { return vocabulary_.piece(token); }
  std::optional<Token> find_piece(std::string_view piece) const final {
    return piece.empty() ? std::nullopt : vocabulary_.find(piece);
  }
  std::optional<Token> bos() const final { return marks_.bos; }
  std::optional<Token> eos() const final { return marks_.eos; }
  bool adds_bos() const final { return marks_.adds_bos; }
  std::string_view chat_template() const final { return marks_.chat_template; }
  std::string_view chat_template_file() const final { return marks_.chat_template_file; }

 protected:
  /// Where the config names <bos> or <eos>, these count instead of the model's.
  VocabularyTokenizer(const SentencePieceModel& model, const TokenizerConfig& config);
  /// The pieces, and the bytes that each stands for.
  VocabularyTokenizer(const std::vector<SentencePiece>& pieces,
                      const std::vector<std::string>& bytes, InputMarks marks);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Throws Error for a text longer than kMaxTextBytes.
  static void check_length(std::string_view text);

 private:
  Vocabulary vocabulary_;
  InputMarks marks_;
};

}  // namespace specdec
