#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/side_tokens.h"
#include "core/formats/tokenizer_config.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// A tokenizer from the bytes of a tokenizer.model file, encoding with libsentencepiece. Throws
/// WeightsError, naming `where`, when the bytes are not a model of Gemma's or Llama 2's kind.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string_view bytes, const std::string& where,
                                                   const TokenizerConfig& config = {});
/// The same of a folder's file and the tokens that the files beside it add to a model whose
/// vocabulary has `vocab_size` entries (see add_side_tokens).
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(const std::filesystem::path& file,
                                                   uint64_t vocab_size,
                                                   const TokenizerConfig& config);

}  // namespace specdec
