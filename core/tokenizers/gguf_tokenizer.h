#pragma once
#include <memory>

#include "core/formats/gguf/gguf.h"
#include "core/formats/sentencepiece_model.h"
#include "core/formats/tokenizer_json_reader.h"
#include "core/tokenizers/byte_level_tokenizer.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// The tokenizer in a GGUF file's metadata (tokenizer.ggml.*): "gpt2", byte-level BPE, split as
/// tokenizer.ggml.pre names it, "llama", SentencePiece as Gemma and Llama 2 have it, or "gemma4",
/// BPE with byte fallback as in Gemma's tokenizer.json. Throws WeightsError naming file and key:
/// others, lists of unequal length, missing pieces.
std::unique_ptr<Tokenizer> gguf_tokenizer(const GgufMetadata& metadata);

/// False for a model that takes token ids only.
bool has_tokenizer(const GgufMetadata& metadata);

/// What the metadata says of each kind: "gpt2", "llama" and "gemma4". Of the last, <bos> stands
/// before every text, and the scores mean nothing.
ByteLevelModel gguf_byte_level(const GgufMetadata& metadata);
SentencePieceModel gguf_sentencepiece(const GgufMetadata& metadata);
BpeModel gguf_bpe(const GgufMetadata& metadata);

}  // namespace specdec
