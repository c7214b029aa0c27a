#pragma once
#include <string>

#include "core/formats/sentencepiece_model.h"

namespace specdec {

/// The text of a Hugging Face tokenizer.json that gives the same ids as the SentencePiece model:
/// BPE with byte fallback, merges in the order of the pieces' scores, control and user-defined
/// pieces as added tokens, <bos> put before the text by the post-processor. Unused pieces, which
/// may be empty or stand twice, have placeholders in the vocabulary.
std::string tokenizer_json(const SentencePieceModel& model);

/// The text of the tokenizer_config.json that belongs to it.
std::string tokenizer_config_json(const SentencePieceModel& model);

}  // namespace specdec
