#include <fmt/format.h>

#include "core/error.h"
#include "core/tokenizers/pre_tokenizer.h"
#include "core/tokenizers/tokenizer_files.h"

namespace specdec {
namespace {

/// Score of pieces that only fill up the vocabulary.
constexpr float kPaddingScore = -1e6F;

void add_pieces(std::vector<SentencePiece> pieces, int64_t vocab_size, bool scored,
                GgufEntries& entries) {
  for (auto id = static_cast<int64_t>(pieces.size()); id < vocab_size; ++id) {
    pieces.push_back(
        {.text = fmt::format("[PAD{}]", id), .score = kPaddingScore, .type = PieceType::kUnused});
  }
  std::vector<std::string> texts;
  std::vector<int64_t> types;
  std::vector<float> scores;
  for (SentencePiece& piece : pieces) {
    texts.push_back(std::move(piece.text));
    types.push_back(static_cast<int64_t>(piece.type));
    scores.push_back(piece.score);
  }
  entries.emplace_back("tokenizer.ggml.tokens", std::move(texts));
  if (scored) {
    entries.emplace_back("tokenizer.ggml.scores", std::move(scores));
  }
  entries.emplace_back("tokenizer.ggml.token_type", std::move(types));
}

void add_byte_level(const ByteLevelModel& model, int64_t vocab_size, const std::string& where,
                    GgufEntries& entries) {
  const NamedPreTokenizer* pre = find_pre_tokenizer(model.patterns, model.ignore_merges, model.nfc);
  if (pre == nullptr) {
    throw WeightsError(fmt::format(
        "{}: GGUF names how a tokenizer splits text into words, and this one's way has none of "
        "the names known here ({}). Convert the model with --no-tokenizer, for token ids only.",
        where, pre_tokenizer_names()));
  }
  for (const AddedToken& token : model.added) {
    const SentencePiece& piece = model.pieces[static_cast<size_t>(token.id)];
    if (piece.type == PieceType::kNormal || (token.normalized && model.nfc)) {
      throw WeightsError(fmt::format(
          "{}: the added token \"{}\" {}, which GGUF has no word for. Convert the model with "
          "--no-tokenizer, for token ids only.",
          where, piece.text,
          piece.type == PieceType::kNormal ? "is also what BPE makes of bytes"
                                           : "is looked for in the composed text (NFC)"));
    }
  }
  entries.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  entries.emplace_back("tokenizer.ggml.pre", std::string(pre->name));
  add_pieces(model.pieces, vocab_size, /*scored=*/false, entries);
  std::vector<std::string> merges;
  for (const BpeMerge& merge : model.merges) {
    merges.push_back(model.pieces[static_cast<size_t>(merge.left)].text + " " +
                     model.pieces[static_cast<size_t>(merge.right)].text);
  }
  entries.emplace_back("tokenizer.ggml.merges", std::move(merges));
}

void add_sentencepiece(const SentencePieceModel& model, int64_t vocab_size,
                       const std::string& where, GgufEntries& entries) {
  const bool prefix = model.prefix_space == PrefixSpace::kAlways;
  if (!prefix && model.prefix_space != PrefixSpace::kNone) {
    throw WeightsError(fmt::format(
        "{}: its tokenizer.json puts a space before a text only where none is, which GGUF has no "
        "word for: there the space is put before every text. Put the checkpoint's tokenizer.model "
        "beside it, which does the same, or convert with --no-tokenizer, for token ids only.",
        where));
  }
  entries.emplace_back("tokenizer.ggml.model", std::string("llama"));
  entries.emplace_back("tokenizer.ggml.pre", std::string("default"));
  add_pieces(model.pieces, vocab_size, /*scored=*/true, entries);
  entries.emplace_back("tokenizer.ggml.unknown_token_id", int64_t{model.unk});
  entries.emplace_back("tokenizer.ggml.add_space_prefix", prefix);
}

}  // namespace

void add_gguf_tokenizer(const TokenizerFiles& files, int64_t vocab_size, const std::string& where,
                        GgufEntries& entries) {
  if (const auto* byte_level = std::get_if<ByteLevelModel>(&files.model)) {
    add_byte_level(*byte_level, vocab_size, where, entries);
  } else {
    add_sentencepiece(std::get<SentencePieceModel>(files.model), vocab_size, where, entries);
  }
  if (files.pad) {
    entries.emplace_back("tokenizer.ggml.padding_token_id", int64_t{*files.pad});
  }
  entries.emplace_back("tokenizer.ggml.add_bos_token", files.adds_bos);
  if (!files.chat_template.empty()) {
    entries.emplace_back("tokenizer.chat_template", files.chat_template);
  }
}

}  // namespace specdec
