#pragma once
#include <memory>

#include "core/formats/gguf.h"
#include "core/formats/sentencepiece_model.h"
#include "core/tokenizers/byte_level_tokenizer.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// The tokenizer in a GGUF file's metadata (tokenizer.ggml.*): "gpt2", byte-level BPE, split as
/// tokenizer.ggml.pre names it, or "llama", SentencePiece as Gemma and Llama 2 have it.
/// Throws WeightsError naming file and key: others, lists of unequal length, missing pieces.
std::unique_ptr<Tokenizer> gguf_tokenizer(const GgufMetadata& metadata);

/// False for a model that takes token ids only.
bool has_tokenizer(const GgufMetadata& metadata);

/// What the metadata says of the one and of the other kind.
ByteLevelModel gguf_byte_level(const GgufMetadata& metadata);
SentencePieceModel gguf_sentencepiece(const GgufMetadata& metadata);

}  // namespace specdec
