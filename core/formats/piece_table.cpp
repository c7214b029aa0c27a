#include "core/formats/piece_table.h"

#include <fmt/format.h>

#include "core/error.h"

namespace specdec {

void PieceTable::fail(const std::string& what) const {
  throw WeightsError(fmt::format("{}: {}", where_, what));
}

void PieceTable::add_new(const std::string& text, uint64_t id, PieceType type) {
  if (ids_.count(text) != 0) {
    fail(fmt::format("model.vocab: the piece \"{}\" stands twice.", text));
  }
  put(text, id, type);
}

void PieceTable::add(const std::string& text, uint64_t id, PieceType type) {
  if (ids_.count(text) == 0) {
    if (id < next_added_) {
      fail(fmt::format(
          "added token \"{}\" with id {}: it stands behind one with a higher id, so the "
          "`tokenizers` library would give it another. Order added_tokens by id.",
          text, id));
    }
    next_added_ = id + 1;
  }
  put(text, id, type);
}

void PieceTable::put(const std::string& text, uint64_t id, PieceType type) {
  if (text.empty() || id >= most_) {
    fail(
        fmt::format("piece \"{}\" with id {}: pieces are not empty, and ids run from 0 without "
                    "gaps.",
                    text, id));
  }
  const auto [known, is_new] = ids_.emplace(text, static_cast<Token>(id));
  if (!is_new && known->second != static_cast<Token>(id)) {
    fail(fmt::format("piece \"{}\" has two ids, {} and {}.", text, known->second, id));
  }
  if (id >= pieces_.size()) {
    pieces_.resize(id + 1);
  }
  if (is_new && !pieces_[id].text.empty()) {
    fail(fmt::format("id {} has two pieces, \"{}\" and \"{}\".", id, pieces_[id].text, text));
  }
  pieces_[id] = {.text = text, .score = 0.0F, .type = type};
}

void PieceTable::check_gaps() const {
  for (size_t id = 0; id < pieces_.size(); ++id) {
    if (pieces_[id].text.empty()) {
      fail(fmt::format("no piece has the id {}, but there are higher ones.", id));
    }
  }
}

std::optional<Token> PieceTable::find(const std::string& text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

Token PieceTable::id_of(const std::string& text, const std::string& needed_by) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) {
    fail(fmt::format("{} needs the piece \"{}\", which model.vocab does not have.", needed_by,
                     text));
  }
  return found->second;
}

Token PieceTable::id_of(const std::string& text, size_t merge) const {
  const auto found = ids_.find(text);
  return found != ids_.end() ? found->second
                             : id_of(text, fmt::format("model.merges: merge {}", merge));
}

}  // namespace specdec
