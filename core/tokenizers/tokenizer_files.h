#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <variant>

#include "core/formats/gguf/gguf.h"
#include "core/formats/gguf/gguf_writer.h"
#include "core/formats/sentencepiece_model.h"
#include "core/formats/tokenizer_json_sax.h"
#include "core/tokenizers/byte_level_tokenizer.h"

namespace specdec {

/// What a checkpoint's files say of its tokenizer, whichever format they have.
struct TokenizerFiles {
  std::variant<SentencePieceModel, ByteLevelModel> model;
  std::optional<Token> bos, eos, pad;
  bool adds_bos = false;
  std::string chat_template;  ///< jinja; "" = none
};

/// The file that a folder's tokenizer is read from: tokenizer.model, but tokenizer.json where that
/// is alone, where tokenizer.model is not SentencePiece's (or damaged), and where it adds tokens of
/// the model's vocabulary that tokenizer.model lacks. Empty where neither is there.
std::filesystem::path tokenizer_file(const std::filesystem::path& folder);

/// Takes those of a tokenizer.json's added tokens out that lie beyond the `vocab_size` entries of
/// its model's vocabulary, which never produces them (a <pad> that was added for training). Returns
/// what to tell the user of the model `where`; "" where there are none.
std::string leave_out_beyond(TokenizerJsonText& text, uint64_t vocab_size,
                             const std::string& where);

/// Entries of a model's vocabulary by its folder's config.json; the largest number where that does
/// not say it. Throws WeightsError for a damaged one.
uint64_t vocabulary_size(const std::filesystem::path& folder);

/// Reads the tokenizer's files of a folder (tokenizer_file, tokenizer_config.json,
/// chat_template.jinja) or the tokenizer of a GGUF file; nothing where there is none. Throws
/// WeightsError for one that is not supported, as load_tokenizer does.
std::optional<TokenizerFiles> read_tokenizer_files(const std::filesystem::path& model);
std::optional<TokenizerFiles> read_tokenizer_files(const GgufMetadata& metadata);

/// Appends the keys tokenizer.* of a GGUF file whose model has `vocab_size` entries; those beyond
/// the tokenizer's are unused ones. Throws WeightsError, naming `where`, for a tokenizer that GGUF
/// has no name or no scores for.
void add_gguf_tokenizer(const TokenizerFiles& files, int64_t vocab_size, const std::string& where,
                        GgufEntries& entries);

/// Writes tokenizer.json and tokenizer_config.json (with the chat template) into a folder.
void write_tokenizer_files(const TokenizerFiles& files, const std::filesystem::path& folder);

}  // namespace specdec
