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

/// The tables that every tokenizer has: pieces, the bytes they stand for, ids.
class Vocabulary {
 public:
  /// The pieces must be as parse_sentencepiece_model checks them: distinct, 256 bytes among them.
  explicit Vocabulary(const SentencePieceModel& model);
  /// Any pieces, and the bytes that each stands for. Those of unused ids count as empty.
  Vocabulary(const std::vector<SentencePiece>& pieces, const std::vector<std::string>& bytes);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int64_t size() const { return static_cast<int64_t>(types_.size()); }
  /// Piece, or bytes, of a token; empty for an id outside the vocabulary.
  std::string_view piece(Token token) const { return holds(token) ? pieces_[token] : ""; }
  std::string_view bytes(Token token) const { return holds(token) ? bytes_[token] : ""; }
  PieceType type(Token token) const { return types_[static_cast<size_t>(token)]; }
  std::optional<Token> find(std::string_view piece) const;
  /// Id of the piece that stands for one byte.
  Token byte_token(unsigned char byte) const { return byte_tokens_[byte]; }

 private:
  /// The texts of all tokens, one after the other.
  class Texts {
   public:
    void reserve(size_t texts, size_t bytes);
    void add(std::string_view text);
    std::string_view operator[](Token token) const;

   private:
    std::string all_;
    std::vector<uint32_t> ends_ = {0};  // where each begins is where the one before ends
  };

  bool holds(Token token) const { return token >= 0 && token < size(); }
  /// Where the id of `piece` is, or would be.
  size_t slot_of(std::string_view piece) const;

  Texts pieces_;
  Texts bytes_;
  std::vector<PieceType> types_;
  std::vector<Token> ids_;  // by the pieces' hashes, in the next free slot; -1: free
  std::array<Token, 256> byte_tokens_{};
};

}  // namespace specdec
