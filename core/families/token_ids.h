#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/types.h"

namespace specdec {

class JsonKeys;

/// eos_token_id of a config: an id, or a list of them; none when the key is missing. Ids outside
/// the vocabulary, which some published configs have, never occur and are left out. Throws
/// WeightsError naming the key.
std::vector<Token> read_end_ids(const JsonKeys& keys, int64_t vocab_size);

/// eos_token_id of the generation_config.json in a folder, as read_end_ids reads it; nothing where
/// there is no such file or it does not say.
std::optional<std::vector<Token>> read_generation_ends(const std::filesystem::path& folder,
                                                       int64_t vocab_size);

/// suppress_tokens of the generation_config.json in a folder: tokens that are never generated;
/// empty where there is no such file or it names none.
std::vector<Token> read_suppressed(const std::filesystem::path& folder, int64_t vocab_size);

/// bos_token_id of a config: an id, or the first one of a list; -1 where none is in the vocabulary,
/// `fallback` when the key is missing.
Token read_bos_id(const JsonKeys& keys, int64_t vocab_size, Token fallback);

}  // namespace specdec
