#include "core/tokenizers/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/formats/tokenizer_json.h"
#include "core/formats/tokenizer_json_reader.h"
#include "core/formats/tokenizer_json_sax.h"
#include "core/formats/utf8.h"
#include "core/tokenizers/bpe_tokenizer.h"
#include "core/tokenizers/byte_level_tokenizer.h"
#include "core/tokenizers/pre_tokenizer.h"

namespace specdec {
namespace {

const std::string kTokens = "tokenizer.ggml.tokens";
const std::string kTypes = "tokenizer.ggml.token_type";
const std::string kMerges = "tokenizer.ggml.merges";
const std::string kScores = "tokenizer.ggml.scores";
/// Gemma 4's end of an answer that calls tools.
constexpr std::string_view kToolResponse = "<|tool_response>";

/// Token types have SentencePiece's numbers.
PieceType piece_type(const GgufMetadata& metadata, int64_t type, size_t id) {
  constexpr auto kLargest = static_cast<int64_t>(PieceType::kByte);
  if (type < 1 || type > kLargest) {
    metadata.fail(kTypes, fmt::format("has the unknown type {} for token {}", type, id));
  }
  return static_cast<PieceType>(type);
}

void check_length(const GgufMetadata& metadata, const std::string& key, size_t length,
                  size_t tokens) {
  if (length != tokens) {
    metadata.fail(key, fmt::format("has {} entries, but '{}' has {}", length, kTokens, tokens));
  }
}

std::vector<SentencePiece> read_pieces(const GgufMetadata& metadata) {
  const auto& texts = metadata.texts(kTokens);
  const auto& types = metadata.integers(kTypes);
  check_length(metadata, kTypes, types.size(), texts.size());
  if (texts.empty()) {
    metadata.fail(kTokens, "is empty");
  }
  std::vector<SentencePiece> pieces;
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < texts.size(); ++id) {
    const PieceType type = piece_type(metadata, types[id], id);
    if (!is_utf8(texts[id])) {
      metadata.fail(kTokens, fmt::format("has a token {} that is not UTF-8", id));
    }
    const auto [known, is_new] = ids.emplace(texts[id], id);
    if (type != PieceType::kUnused && (texts[id].empty() || !is_new)) {
      metadata.fail(kTokens, texts[id].empty() ? fmt::format("has an empty token {}", id)
                                               : fmt::format("has \"{}\" twice, as {} and {}",
                                                             texts[id], known->second, id));
    }
    pieces.push_back({.text = texts[id], .score = 0.0F, .type = type});
  }
  return pieces;
}

std::optional<Token> read_id(const GgufMetadata& metadata, const std::string& key, size_t tokens) {
  if (!metadata.has(key)) {
    return std::nullopt;
  }
  const int64_t id = metadata.integer(key);
  if (id == -1 || id == int64_t{UINT32_MAX}) {  // llama.cpp's "none", also where unsigned
    return std::nullopt;
  }
  if (id < 0 || static_cast<size_t>(id) >= tokens) {
    metadata.fail(key, fmt::format("is {}, but there are {} tokens", id, tokens));
  }
  return static_cast<Token>(id);
}

/// The merges, each of two pieces with a space between: no piece of theirs holds one.
class MergesReader {
 public:
  /// `takes_part`: whether a piece of this type may be in a merge.
  MergesReader(const GgufMetadata& metadata, const std::vector<SentencePiece>& pieces,
               bool (*takes_part)(PieceType))
      : metadata_(metadata) {
    for (size_t id = 0; id < pieces.size(); ++id) {
      if (takes_part(pieces[id].type)) {
        ids_.emplace(pieces[id].text, static_cast<Token>(id));
      }
    }
  }

  std::vector<BpeMerge> read() const {
    std::vector<BpeMerge> all;
    const auto& merges = metadata_.texts(kMerges);
    for (size_t i = 0; i < merges.size(); ++i) {
      const size_t space = merges[i].find(' ', 1);
      if (space == std::string::npos) {
        metadata_.fail(kMerges, fmt::format("has \"{}\", which is not two pieces", merges[i]));
      }
      const std::string left = merges[i].substr(0, space);
      const std::string right = merges[i].substr(space + 1);
      all.push_back(
          {.left = id_of(left, i), .right = id_of(right, i), .result = id_of(left + right, i)});
    }
    return all;
  }

 private:
  Token id_of(const std::string& text, size_t merge) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) {
      metadata_.fail(kMerges, fmt::format("needs the piece \"{}\" for merge {}, which '{}' does "
                                          "not have",
                                          text, merge, kTokens));
    }
    return found->second;
  }

  const GgufMetadata& metadata_;
  std::unordered_map<std::string, Token> ids_;
};

bool is_normal(PieceType type) { return type == PieceType::kNormal; }
bool is_used(PieceType type) { return type != PieceType::kUnused; }

class ByteLevelMetadata {
 public:
  explicit ByteLevelMetadata(const GgufMetadata& metadata) : metadata_(metadata) {}

  ByteLevelModel read() {
    const std::string pre = metadata_.text("tokenizer.ggml.pre", "default");
    const NamedPreTokenizer* named = find_pre_tokenizer(pre);
    if (named == nullptr) {
      metadata_.fail(
          "tokenizer.ggml.pre",
          fmt::format("is '{}', which is not supported; known: {}. A text would be split "
                      "into other tokens than the model was trained on; use the "
                      "checkpoint's Hugging Face folder",
                      pre, pre_tokenizer_names()));
    }
    ByteLevelModel model;
    model.patterns = named->patterns;
    model.ignore_merges = named->ignore_merges;
    model.nfc = named->nfc;
    model.pieces = read_pieces(metadata_);
    refuse_sentencepiece_types(model);
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      if (model.pieces[id].type == PieceType::kUserDefined && !model.pieces[id].text.empty()) {
        model.added.push_back({.text = model.pieces[id].text, .id = static_cast<Token>(id)});
      }
    }
    const size_t tokens = model.pieces.size();
    model.bos = read_id(metadata_, "tokenizer.ggml.bos_token_id", tokens);
    model.eos = read_id(metadata_, "tokenizer.ggml.eos_token_id", tokens);
    model.adds_bos = metadata_.boolean("tokenizer.ggml.add_bos_token", named->adds_bos);
    model.chat_template = metadata_.text("tokenizer.chat_template", "");
    model.chat_template_file = metadata_.where();
    model.merges = MergesReader(metadata_, model.pieces, is_normal).read();
    return model;
  }

 private:
  void refuse_sentencepiece_types(const ByteLevelModel& model) const {
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      const PieceType type = model.pieces[id].type;
      if (type == PieceType::kByte || type == PieceType::kUnknown) {
        metadata_.fail(kTypes, fmt::format("has the type {} ({}) for token {}, which a byte-level "
                                           "vocabulary ('tokenizer.ggml.model' is 'gpt2') does not "
                                           "have",
                                           static_cast<int>(type),
                                           type == PieceType::kByte ? "byte" : "unknown", id));
      }
    }
  }

  const GgufMetadata& metadata_;
};

/// The unknown token by its key, else the first token of its type.
Token unknown_id(const GgufMetadata& metadata, const std::vector<SentencePiece>& pieces) {
  const std::string key = "tokenizer.ggml.unknown_token_id";
  if (const auto id = read_id(metadata, key, pieces.size())) {
    return *id;
  }
  const auto found = std::find_if(pieces.begin(), pieces.end(), [](const SentencePiece& piece) {
    return piece.type == PieceType::kUnknown;
  });
  if (found == pieces.end()) {
    metadata.fail(key, fmt::format("is missing, and '{}' has no token of the type {} (unknown)",
                                   kTypes, static_cast<int>(PieceType::kUnknown)));
  }
  return static_cast<Token>(found - pieces.begin());
}

/// Throws where not each byte has its piece.
void check_bytes(const GgufMetadata& metadata, const std::vector<SentencePiece>& pieces) {
  size_t bytes = 0;
  for (const SentencePiece& piece : pieces) {
    const bool byte = piece.type == PieceType::kByte;
    if (byte && !byte_piece_value(piece.text)) {
      metadata.fail(kTokens, fmt::format("has \"{}\" as a byte", piece.text));
    }
    bytes += byte ? 1 : 0;
  }
  if (bytes != 256) {
    metadata.fail(kTypes, fmt::format("has {} of the 256 byte pieces", bytes));
  }
}

/// The BPE model by way of the tokenizer.json that gives the same ids, which has no unused pieces.
BpeModel bpe_model(const SentencePieceModel& pieces, const std::string& where) {
  BpeModel model = parse_tokenizer_json(split_tokenizer_json(tokenizer_json(pieces), where), where);
  for (size_t id = 0; id < pieces.pieces.size(); ++id) {
    if (pieces.pieces[id].type == PieceType::kUnused) {
      model.vocabulary.pieces[id].type = PieceType::kUnused;
    }
  }
  model.vocabulary.bos = pieces.bos ? pieces.bos : model.vocabulary.bos;
  model.vocabulary.eos = pieces.eos ? pieces.eos : model.vocabulary.eos;
  model.vocabulary.adds_bos = pieces.adds_bos;
  return model;
}

}  // namespace

SentencePieceModel gguf_sentencepiece(const GgufMetadata& metadata) {
  SentencePieceModel model;
  const bool prefix = metadata.boolean("tokenizer.ggml.add_space_prefix", true);
  model.prefix_space = prefix ? PrefixSpace::kAlways : PrefixSpace::kNone;
  model.pieces = read_pieces(metadata);
  const size_t tokens = model.pieces.size();
  const auto& scores = metadata.numbers(kScores);
  check_length(metadata, kScores, scores.size(), tokens);
  for (size_t id = 0; id < tokens; ++id) {
    model.pieces[id].score = scores[id];
  }
  check_bytes(metadata, model.pieces);
  model.unk = unknown_id(metadata, model.pieces);
  model.adds_bos = metadata.boolean("tokenizer.ggml.add_bos_token", true);
  model.bos = read_id(metadata, "tokenizer.ggml.bos_token_id", tokens);
  model.eos = read_id(metadata, "tokenizer.ggml.eos_token_id", tokens);
  model.pad = read_id(metadata, "tokenizer.ggml.padding_token_id", tokens);
  return model;
}

BpeModel gguf_bpe(const GgufMetadata& metadata) {
  BpeModel model;
  SentencePieceModel& vocabulary = model.vocabulary;
  vocabulary.pieces = read_pieces(metadata);
  const size_t tokens = vocabulary.pieces.size();
  check_bytes(metadata, vocabulary.pieces);
  for (size_t id = 0; id < tokens; ++id) {
    SentencePiece& piece = vocabulary.pieces[id];
    if (piece.type == PieceType::kUserDefined && piece.text == kToolResponse) {
      piece.type = PieceType::kControl;  // it ends an answer
    }
    if (piece.type == PieceType::kUserDefined) {
      model.added.push_back({.text = piece.text, .id = static_cast<Token>(id)});
    }
  }
  model.merges = MergesReader(metadata, vocabulary.pieces, is_used).read();
  vocabulary.unk = unknown_id(metadata, vocabulary.pieces);
  vocabulary.adds_bos = true;
  vocabulary.bos = read_id(metadata, "tokenizer.ggml.bos_token_id", tokens);
  vocabulary.eos = read_id(metadata, "tokenizer.ggml.eos_token_id", tokens);
  vocabulary.pad = read_id(metadata, "tokenizer.ggml.padding_token_id", tokens);
  return model;
}

ByteLevelModel gguf_byte_level(const GgufMetadata& metadata) {
  return ByteLevelMetadata(metadata).read();
}

bool has_tokenizer(const GgufMetadata& metadata) {
  const std::string model = metadata.text("tokenizer.ggml.model", "");
  const bool missing = model.empty() && !metadata.has(kTokens);
  return !missing && model != "no_vocab" && model != "none";
}

std::unique_ptr<Tokenizer> gguf_tokenizer(const GgufMetadata& metadata) {
  const std::string model = metadata.text("tokenizer.ggml.model");
  if (model == "gpt2") {
    return byte_level_tokenizer(gguf_byte_level(metadata), metadata.where());
  }
  const TokenizerConfig config{.chat_template = metadata.text("tokenizer.chat_template", ""),
                               .chat_template_file = metadata.where()};
  if (model == "llama") {
    return bpe_tokenizer(bpe_model(gguf_sentencepiece(metadata), metadata.where()), config);
  }
  if (model == "gemma4") {
    return bpe_tokenizer(gguf_bpe(metadata), config);
  }
  metadata.fail("tokenizer.ggml.model",
                fmt::format("is '{}', which is not supported; known: gpt2, llama, gemma4", model));
}

}  // namespace specdec
