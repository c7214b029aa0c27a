#include "core/vocabulary.h"

#include <bit>
#include <functional>
#include <utility>

namespace specdec {
namespace {

std::string bytes_of(const SentencePiece& piece) {
  switch (piece.type) {
    case PieceType::kNormal:
    case PieceType::kUserDefined:
      return replace_all(piece.text, kSpaceMark, " ");
    case PieceType::kByte:
      return {static_cast<char>(byte_piece_value(piece.text).value_or(0))};
    case PieceType::kControl:
    case PieceType::kUnknown:
      break;
  }
  return {};
}

}  // namespace

Vocabulary::Vocabulary(SentencePieceModel model)
    : model_(std::move(model)), ids_(std::bit_ceil(2 * model_.pieces.size() + 1), -1) {
  begins_.reserve(model_.pieces.size() + 1);
  for (size_t i = 0; i < model_.pieces.size(); ++i) {
    const SentencePiece& piece = model_.pieces[i];
    begins_.push_back(bytes_.size());
    bytes_ += bytes_of(piece);
    ids_[slot_of(piece.text)] = static_cast<Token>(i);
    if (piece.type == PieceType::kByte) {
      byte_tokens_.at(static_cast<unsigned char>(bytes_.back())) = static_cast<Token>(i);
    }
  }
  begins_.push_back(bytes_.size());
  bytes_.shrink_to_fit();
}

size_t Vocabulary::slot_of(std::string_view piece) const {
  size_t slot = std::hash<std::string_view>()(piece) & (ids_.size() - 1);
  while (ids_[slot] >= 0 && this->piece(ids_[slot]) != piece) {
    slot = (slot + 1) & (ids_.size() - 1);
  }
  return slot;
}

std::string_view Vocabulary::piece(Token token) const {
  return holds(token) ? std::string_view(model_.pieces[static_cast<size_t>(token)].text) : "";
}

std::string_view Vocabulary::bytes(Token token) const {
  if (!holds(token)) {
    return "";
  }
  const size_t begin = begins_[static_cast<size_t>(token)];
  return std::string_view(bytes_).substr(begin, begins_[static_cast<size_t>(token) + 1] - begin);
}

std::optional<Token> Vocabulary::find(std::string_view piece) const {
  const Token id = ids_[slot_of(piece)];
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace specdec
