#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "core/formats/tokenizer_config.h"
#include "core/tokenizers/tokenizer.h"

namespace specdec {

struct BpeModel;

/// A tokenizer from the text of a Hugging Face tokenizer.json of Gemma's or Llama 2's kind: BPE
/// with byte fallback, " " replaced by "▁", perhaps a space put before texts, no splitting into
/// words. Ids are those of the `tokenizers` library with special tokens encoded as text, except
/// that Gemma's special tokens other than <bos>, <eos>, <pad> and the unknown one are recognised,
/// as its SentencePiece model does.
///
/// Throws WeightsError, naming `where`: not JSON (with line and column), missing keys, a part that
/// is not supported, ids with gaps or taken twice, merges of pieces that do not exist.
std::unique_ptr<Tokenizer> bpe_tokenizer(std::string_view json, const std::string& where,
                                         const TokenizerConfig& config = {});
/// A tokenizer from a file that has been read; `config` names <bos>, <eos> and the chat template.
std::unique_ptr<Tokenizer> bpe_tokenizer(const BpeModel& model, const TokenizerConfig& config);

}  // namespace specdec
