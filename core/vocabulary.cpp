#include "core/vocabulary.h"

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

Vocabulary::Vocabulary(SentencePieceModel model) : model_(std::move(model)) {
  bytes_.reserve(model_.pieces.size());
  ids_.reserve(model_.pieces.size());
  for (size_t i = 0; i < model_.pieces.size(); ++i) {
    const SentencePiece& piece = model_.pieces[i];
    bytes_.push_back(bytes_of(piece));
    ids_.emplace(piece.text, static_cast<Token>(i));
    if (piece.type == PieceType::kByte) {
      byte_tokens_.at(static_cast<unsigned char>(bytes_.back()[0])) = static_cast<Token>(i);
    }
  }
}

std::string_view Vocabulary::piece(Token token) const {
  return holds(token) ? std::string_view(model_.pieces[static_cast<size_t>(token)].text) : "";
}

std::string_view Vocabulary::bytes(Token token) const {
  return holds(token) ? std::string_view(bytes_[static_cast<size_t>(token)]) : "";
}

std::optional<Token> Vocabulary::find(std::string_view piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace specdec
