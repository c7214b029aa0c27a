#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/sentencepiece_model.h"
#include "core/types.h"

namespace specdec {

/// The tables that every tokenizer of Gemma's kind has: pieces, the bytes they stand for, ids.
class Vocabulary {
 public:
  /// The pieces must be as parse_sentencepiece_model checks them: distinct, 256 bytes among them.
  explicit Vocabulary(SentencePieceModel model);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int64_t size() const { return static_cast<int64_t>(model_.pieces.size()); }
  const SentencePieceModel& model() const { return model_; }
  /// Empty for an id outside the vocabulary.
  std::string_view piece(Token token) const;
  std::string_view bytes(Token token) const;
  std::optional<Token> find(std::string_view piece) const;
  /// Id of the piece that stands for one byte.
  Token byte_token(unsigned char byte) const { return byte_tokens_[byte]; }

 private:
  bool holds(Token token) const { return token >= 0 && token < size(); }
  /// Where the id of `piece` is, or would be.
  size_t slot_of(std::string_view piece) const;

  SentencePieceModel model_;
  std::string bytes_;           // of all tokens
  std::vector<size_t> begins_;  // in bytes_, of each token and of the end
  std::vector<Token> ids_;      // by the pieces' hashes, in the next free slot; -1: free
  std::array<Token, 256> byte_tokens_{};
};

}  // namespace specdec
