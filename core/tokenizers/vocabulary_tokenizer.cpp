#include "core/tokenizers/vocabulary_tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace specdec {

VocabularyTokenizer::VocabularyTokenizer(const SentencePieceModel& model,
                                         const TokenizerConfig& config)
    : vocabulary_(model), chat_template_(config.chat_template) {
  const auto named = [&](const char* key, std::optional<Token> otherwise) {
    const auto piece = config.pieces.find(key);
    const auto token = piece == config.pieces.end() ? std::nullopt : find_piece(piece->second);
    return token ? token : otherwise;
  };
  bos_ = named("bos_token", model.bos);
  eos_ = named("eos_token", model.eos);
}

VocabularyTokenizer::VocabularyTokenizer(const std::vector<SentencePiece>& pieces,
                                         const std::vector<std::string>& bytes,
                                         std::optional<Token> bos, std::optional<Token> eos,
                                         std::string chat_template)
    : vocabulary_(pieces, bytes), bos_(bos), eos_(eos), chat_template_(std::move(chat_template)) {}

void VocabularyTokenizer::check_length(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    throw Error(fmt::format("a text of {} bytes is too long to encode at once; the limit is {}.",
                            text.size(), kMaxTextBytes));
  }
}

}  // namespace specdec
