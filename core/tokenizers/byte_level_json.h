#pragma once
#include <string>

#include "core/formats/tokenizer_config.h"
#include "core/formats/tokenizer_json_sax.h"
#include "core/tokenizers/byte_level_tokenizer.h"

namespace specdec {

/// True for a tokenizer.json of GPT-2's kind: its pre_tokenizer has a ByteLevel step.
bool is_byte_level(const TokenizerJsonText& text);

/// Reads such a file; `config` names <bos>, <eos> and the chat template. Throws WeightsError naming
/// `where` and the part of the file: what is missing, mistyped or not supported.
ByteLevelModel parse_byte_level_json(const TokenizerJsonText& text, const TokenizerConfig& config,
                                     const std::string& where);

/// The text of a tokenizer.json that parse_byte_level_json reads back; pieces beside the normal and
/// user-defined ones become special tokens.
std::string byte_level_json(const ByteLevelModel& model);

}  // namespace specdec
