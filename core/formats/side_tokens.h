#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/formats/added_flags.h"
#include "core/formats/sentencepiece_model.h"

namespace specdec {

/// A token that the files beside a tokenizer.model list.
struct SideToken {
  std::string text;
  uint64_t id = 0;
  bool special = false;
  AddedFlags flags = {};
  bool matched = false;  ///< looked for in every text, before SentencePiece reads what is between
  bool changed = false;  ///< its piece is a normal one in tokenizer.model, or another one
};

/// The tokens that a folder's files list: those of added_tokens_decoder in tokenizer_config.json,
/// else of added_tokens.json; then those that tokenizer_config.json (bos_token, ...,
/// additional_special_tokens) names without an id, and where there is no added_tokens_decoder
/// special_tokens_map.json, which get the next free ids. So reads transformers' slow LlamaTokenizer
/// (4.57). Throws WeightsError naming the file for one that is damaged.
std::vector<SideToken> read_side_tokens(const std::filesystem::path& folder,
                                        const std::vector<SentencePiece>& pieces);

/// Gives the model of a tokenizer.model the folder's side tokens with ids below `vocab_size`, and
/// returns them. Special tokens become control pieces, others user-defined ones, but for those that
/// the model has as such already; ids that nothing has become unused pieces. Throws WeightsError
/// for a token that cannot have its id.
std::vector<SideToken> add_side_tokens(const std::filesystem::path& folder, uint64_t vocab_size,
                                       SentencePieceModel& model);

}  // namespace specdec
