#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/formats/sentencepiece_model.h"

namespace specdec {

/// The pieces of a tokenizer.json while it is read. Ids may come in any order: gaps are looked for
/// at the end. What is wrong is a WeightsError that names the file.
class PieceTable {
 public:
  /// A table of at most `most` pieces.
  PieceTable(size_t most, std::string where) : most_(most), where_(std::move(where)) {
    ids_.reserve(most);
  }

  /// A piece of model.vocab, which has each once.
  void add_new(const std::string& text, uint64_t id, PieceType type);
  /// An added token, which may be known under the same id already; it becomes of this type. Ids of
  /// new ones rise, as the `tokenizers` library gives them by their order, whatever the file says.
  void add(const std::string& text, uint64_t id, PieceType type);
  /// Throws unless all ids up to the highest have a piece.
  void check_gaps() const;

  std::optional<Token> find(const std::string& text) const;
  /// Throws where there is none; `needed_by` names what wants it.
  Token id_of(const std::string& text, const std::string& needed_by) const;
  /// Id of a piece that a merge of model.merges names.
  Token id_of(const std::string& text, size_t merge) const;
  /// The pieces by their ids; empties the table of them.
  std::vector<SentencePiece> take() { return std::move(pieces_); }

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void put(const std::string& text, uint64_t id, PieceType type);

  size_t most_;
  uint64_t next_added_ = 0;  ///< the lowest id that a new added token may have
  std::string where_;
  std::unordered_map<std::string, Token> ids_;
  std::vector<SentencePiece> pieces_;
};

}  // namespace specdec
