#include "core/vocabulary.h"

#include <bit>
#include <functional>

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

void Vocabulary::Texts::reserve(size_t texts, size_t bytes) {
  all_.reserve(bytes);
  ends_.reserve(texts + 1);
}

void Vocabulary::Texts::add(std::string_view text) {
  all_ += text;
  ends_.push_back(static_cast<uint32_t>(all_.size()));
}

std::string_view Vocabulary::Texts::operator[](Token token) const {
  const auto index = static_cast<size_t>(token);
  return std::string_view(all_).substr(ends_[index], ends_[index + 1] - ends_[index]);
}

Vocabulary::Vocabulary(const SentencePieceModel& model)
    : bos_(model.bos),
      eos_(model.eos),
      ids_(std::bit_ceil(model.pieces.size() + model.pieces.size() / 2 + 1), -1) {
  size_t bytes = 0;
  for (const SentencePiece& piece : model.pieces) {
    bytes += piece.text.size();
  }
  pieces_.reserve(model.pieces.size(), bytes);
  bytes_.reserve(model.pieces.size(), bytes);
  types_.reserve(model.pieces.size());
  for (const SentencePiece& piece : model.pieces) {
    const auto id = static_cast<Token>(size());
    pieces_.add(piece.text);
    bytes_.add(bytes_of(piece));
    types_.push_back(piece.type);
    ids_[slot_of(piece.text)] = id;
    if (piece.type == PieceType::kByte) {
      byte_tokens_.at(static_cast<unsigned char>(bytes_[id].front())) = id;
    }
  }
}

size_t Vocabulary::slot_of(std::string_view piece) const {
  size_t slot = std::hash<std::string_view>()(piece) & (ids_.size() - 1);
  while (ids_[slot] >= 0 && this->piece(ids_[slot]) != piece) {
    slot = (slot + 1) & (ids_.size() - 1);
  }
  return slot;
}

std::optional<Token> Vocabulary::find(std::string_view piece) const {
  const Token id = ids_[slot_of(piece)];
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace specdec
