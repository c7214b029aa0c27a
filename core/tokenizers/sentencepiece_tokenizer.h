#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "core/formats/tokenizer_config.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

/// A tokenizer from the bytes of a tokenizer.model file, encoding with libsentencepiece. Throws
/// WeightsError, naming `where`, when the bytes are not a model of Gemma's or Llama 2's kind.
std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string_view bytes, const std::string& where,
                                                   const TokenizerConfig& config = {});

}  // namespace specdec
