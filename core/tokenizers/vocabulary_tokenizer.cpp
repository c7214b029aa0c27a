#include "core/tokenizers/vocabulary_tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace specdec {

VocabularyTokenizer::VocabularyTokenizer(const SentencePieceModel& model,
                                         const TokenizerConfig& config)
    : vocabulary_(model) {
  const auto named = [&](const char* key, std::optional<Token> otherwise) {
    const auto piece = config.pieces.find(key);
    const auto token = piece == config.pieces.end() ? std::nullopt : find_piece(piece->second);
    return token ? token : otherwise;
  };
  marks_ = {.bos = named("bos_token", model.bos),
            .eos = named("eos_token", model.eos),
            .adds_bos = model.adds_bos,
            .chat_template = config.chat_template,
            .chat_template_file = config.chat_template_file};
}

VocabularyTokenizer::VocabularyTokenizer(const std::vector<SentencePiece>& pieces,
                                         const std::vector<std::string>& bytes, InputMarks marks)
    : vocabulary_(pieces, bytes), marks_(std::move(marks)) {}

void VocabularyTokenizer::check_length(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    throw Error(fmt::format("a text of {} bytes is too long to encode at once; the limit is {}.",
                            text.size(), kMaxTextBytes));
  }
}

}  // namespace specdec
