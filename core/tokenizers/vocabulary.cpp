#include "core/tokenizers/vocabulary.h"

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
    case PieceType::kUnused:
      break;
  }
  return {};
}

std::vector<std::string> all_bytes(const std::vector<SentencePiece>& pieces) {
  std::vector<std::string> all;
  all.reserve(pieces.size());
  for (const SentencePiece& piece : pieces) {
    all.push_back(bytes_of(piece));
  }
  return all;
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
    : Vocabulary(model.pieces, all_bytes(model.pieces)) {}

Vocabulary::Vocabulary(const std::vector<SentencePiece>& pieces,
                       const std::vector<std::string>& bytes)
    : ids_(std::bit_ceil(pieces.size() + pieces.size() / 2 + 1), -1) {
  size_t size = 0;
  for (const SentencePiece& piece : pieces) {
    size += piece.text.size();
  }
  pieces_.reserve(pieces.size(), size);
  bytes_.reserve(pieces.size(), size);
  types_.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const SentencePiece& piece = pieces[i];
    const auto id = static_cast<Token>(i);
    const bool unused = piece.type == PieceType::kUnused;
    pieces_.add(unused ? "" : piece.text);
    bytes_.add(bytes[i]);
    types_.push_back(piece.type);
    if (!unused) {
      ids_[slot_of(piece.text)] = id;
    }
    if (piece.type == PieceType::kByte && !bytes[i].empty()) {
      byte_tokens_.at(static_cast<unsigned char>(bytes[i].front())) = id;
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
