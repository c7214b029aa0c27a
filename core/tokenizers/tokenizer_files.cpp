#include "core/tokenizers/tokenizer_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/file_content.h"
#include "core/formats/json_keys.h"
#include "core/formats/side_tokens.h"
#include "core/formats/strict_json.h"
#include "core/formats/tokenizer_config.h"
#include "core/formats/tokenizer_json.h"
#include "core/formats/tokenizer_json_reader.h"
#include "core/formats/tokenizer_json_sax.h"
#include "core/tokenizers/byte_level_json.h"
#include "core/tokenizers/gguf_tokenizer.h"

namespace specdec {
namespace {

using nlohmann::json;

std::optional<Token> configured_token(const TokenizerConfig& config, const char* key,
                                      const std::vector<SentencePiece>& pieces) {
  const auto named = config.pieces.find(key);
  for (size_t id = 0; named != config.pieces.end() && id < pieces.size(); ++id) {
    if (pieces[id].text == named->second) {
      return static_cast<Token>(id);
    }
  }
  return std::nullopt;
}

/// tokenizer.json of these kinds has no scores: they are the order of the merges, if that is one.
SentencePieceModel with_scores(BpeModel bpe, const std::string& where) {
  SentencePieceModel& model = bpe.vocabulary;
  for (const AddedToken& token : bpe.added) {
    if (token.normalized && model.prefix_space == PrefixSpace::kAlways) {
      throw WeightsError(fmt::format(
          "{}: the added token {} is \"normalized\", so it is found behind spaces only, which a "
          "GGUF "
          "file has no word for. Convert the model with --no-tokenizer, for token ids only.",
          where, token.id));
    }
  }
  using Pair = std::pair<std::string, std::string>;
  std::vector<Pair> wanted;
  float score = 0.0F;
  const auto piece = [&model](Token id) -> SentencePiece& {
    return model.pieces[static_cast<size_t>(id)];
  };
  const auto normal = [&](Token id) { return piece(id).type == PieceType::kNormal; };
  for (const BpeMerge& merge : bpe.merges) {
    if (normal(merge.left) && normal(merge.right) && normal(merge.result)) {
      wanted.emplace_back(piece(merge.left).text, piece(merge.right).text);
      if (piece(merge.result).score == 0.0F) {
        piece(merge.result).score = --score;
      }
    }
  }
  if (split_tokenizer_json(tokenizer_json(model), where).merges != wanted) {
    throw WeightsError(fmt::format(
        "{}: its merges are not those that scores of the pieces give, which a GGUF file holds "
        "instead; put the checkpoint's tokenizer.model beside it, or convert the model with "
        "--no-tokenizer, for token ids only.",
        where));
  }
  return std::move(bpe.vocabulary);
}

TokenizerFiles of_sentencepiece(SentencePieceModel model) {
  TokenizerFiles files{.model = {},
                       .bos = model.bos,
                       .eos = model.eos,
                       .pad = model.pad,
                       .adds_bos = model.adds_bos,
                       .chat_template = ""};
  files.model = std::move(model);
  return files;
}

TokenizerFiles of_byte_level(ByteLevelModel model) {
  TokenizerFiles files{.model = {},
                       .bos = model.bos,
                       .eos = model.eos,
                       .pad = {},
                       .adds_bos = model.adds_bos,
                       .chat_template = model.chat_template};
  files.model = std::move(model);
  return files;
}

/// A model's files with the tokens of the files beside it, if other formats can say how they are
/// found.
TokenizerFiles model_files(const std::filesystem::path& file, const TokenizerConfig& config) {
  SentencePieceModel model = parse_sentencepiece_model(read_file(file), file.string(), config);
  const auto folder = file.parent_path();
  for (const SideToken& token : add_side_tokens(folder, vocabulary_size(folder), model)) {
    if (token.flags.any()) {
      throw WeightsError(fmt::format(
          "{}: the files beside it give the token {} white space of the text around it (lstrip, "
          "rstrip or single_word), which cannot be converted. Convert the model with "
          "--no-tokenizer, for token ids only.",
          file.string(), token.text));
    }
  }
  return of_sentencepiece(std::move(model));
}

TokenizerFiles json_files(const std::filesystem::path& file, const TokenizerConfig& config) {
  const std::string where = file.string();
  TokenizerJsonText text = split_tokenizer_json(read_file(file), where);
  const auto folder = file.parent_path();
  (void)leave_out_beyond(text, vocabulary_size(folder), folder.string());
  if (is_byte_level(text)) {
    return of_byte_level(parse_byte_level_json(text, config, where));
  }
  return of_sentencepiece(with_scores(parse_tokenizer_json(std::move(text), where, config), where));
}

/// Pieces of a tokenizer.model; nothing for a file of another kind or a damaged one.
std::optional<uint64_t> count_pieces(const std::filesystem::path& file) {
  try {
    return parse_sentencepiece_model(read_file(file), file.string()).pieces.size();
  } catch (const WeightsError&) {
    return std::nullopt;
  }
}

/// Ids at the end that no piece has, as GGUF pads vocabularies.
void drop_padding(std::vector<SentencePiece>& pieces) {
  while (!pieces.empty() && pieces.back().type == PieceType::kUnused) {
    pieces.pop_back();
  }
}

std::string byte_level_config(const TokenizerFiles& files, const ByteLevelModel& model) {
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"add_bos_token", files.adds_bos},
                                   {"clean_up_tokenization_spaces", false},
                                   {"model_max_length", 1'000'000'000}};
  const auto name = [&](const char* key, std::optional<Token> id) {
    if (id && static_cast<size_t>(*id) < model.pieces.size()) {
      config[key] = model.pieces[static_cast<size_t>(*id)].text;
    }
  };
  name("bos_token", files.bos);
  name("eos_token", files.eos);
  name("pad_token", files.pad);
  name("unk_token", model.unknown);
  return config.dump();
}

}  // namespace

uint64_t vocabulary_size(const std::filesystem::path& folder) {
  constexpr auto kUnknown = std::numeric_limits<uint64_t>::max();
  const auto file = folder / "config.json";
  if (!std::filesystem::exists(file)) {
    return kUnknown;
  }
  // What json.dump writes is not always JSON (Infinity): then the tokenizer is read without it.
  const json config = json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return kUnknown;
  }
  const json& size =
      json_member(config.contains("text_config") ? config["text_config"] : config, "vocab_size");
  if (!size.is_null() && !size.is_number_unsigned()) {
    throw WeightsError(fmt::format("{}: 'vocab_size' should be a whole number, but is {}.",
                                   file.string(), describe_json(size)));
  }
  return size.is_null() ? kUnknown : size.get<uint64_t>();
}

std::filesystem::path tokenizer_file(const std::filesystem::path& folder) {
  const auto model = folder / "tokenizer.model";
  const auto text = folder / "tokenizer.json";
  const bool has_text = has_entry(text);
  if (!has_entry(model)) {
    return has_text ? text : std::filesystem::path();
  }
  if (!has_text) {
    return model;
  }
  const auto pieces = count_pieces(model);
  const auto last = pieces ? last_added_id(read_file(text)) : std::nullopt;
  // Gemma 3 1B's tokenizer.json has a piece for images, which are beyond its vocabulary.
  const bool adds = pieces && last && *last >= *pieces && *last < vocabulary_size(folder);
  return !pieces || adds ? text : model;
}

std::string leave_out_beyond(TokenizerJsonText& text, uint64_t vocab_size,
                             const std::string& where) {
  const auto added = text.rest.is_object() ? text.rest.find("added_tokens") : text.rest.end();
  if (added == text.rest.end() || !added->is_array()) {
    return "";
  }
  std::vector<std::string> names;
  json kept = json::array();
  for (json& token : *added) {
    const bool beyond = token.is_object() && token.contains("id") &&
                        token["id"].is_number_unsigned() &&
                        token["id"].get<uint64_t>() >= vocab_size;
    if (beyond) {
      names.push_back(token.value("content", json()).dump());
    } else {
      kept.push_back(std::move(token));
    }
  }
  *added = std::move(kept);
  return names.empty() ? ""
                       : fmt::format(
                             "{}: the model's vocabulary has {} entries, and the tokenizer "
                             "adds pieces beyond it, which are left out: {}.",
                             where, vocab_size, fmt::join(names, ", "));
}

std::optional<TokenizerFiles> read_tokenizer_files(const GgufMetadata& metadata) {
  if (!has_tokenizer(metadata)) {
    return std::nullopt;
  }
  (void)gguf_tokenizer(metadata);  // refuses what no model here is used with
  const std::string model = metadata.text("tokenizer.ggml.model");
  TokenizerFiles files =
      model == "gpt2"
          ? of_byte_level(gguf_byte_level(metadata))
          : of_sentencepiece(model == "llama" ? gguf_sentencepiece(metadata)
                                              : with_scores(gguf_bpe(metadata), metadata.where()));
  files.chat_template = metadata.text("tokenizer.chat_template", "");
  if (metadata.has("tokenizer.ggml.padding_token_id")) {
    files.pad = static_cast<Token>(metadata.integer("tokenizer.ggml.padding_token_id"));
  }
  return files;
}

std::optional<TokenizerFiles> read_tokenizer_files(const std::filesystem::path& model) {
  if (is_gguf(model)) {
    return read_tokenizer_files(GgufFile(model).metadata());
  }
  const auto file = tokenizer_file(model);
  if (file.empty()) {
    return std::nullopt;
  }
  const TokenizerConfig config = read_tokenizer_config(model);
  TokenizerFiles files =
      file.extension() == ".json" ? json_files(file, config) : model_files(file, config);
  files.chat_template = config.chat_template;
  const auto& pieces = std::visit(
      [](const auto& one) -> const auto& { return one.pieces; }, files.model);
  const auto set = [&](const char* key, std::optional<Token>& token) {
    const auto named = configured_token(config, key, pieces);
    token = named ? named : token;
  };
  set("bos_token", files.bos);
  set("eos_token", files.eos);
  set("pad_token", files.pad);
  return files;
}

void write_tokenizer_files(const TokenizerFiles& files, const std::filesystem::path& folder) {
  json config;
  if (const auto* model = std::get_if<ByteLevelModel>(&files.model)) {
    ByteLevelModel whole = *model;
    drop_padding(whole.pieces);
    whole.bos = files.bos;
    whole.adds_bos = files.adds_bos;
    write_file(folder / "tokenizer.json", byte_level_json(whole));
    config = json::parse(byte_level_config(files, whole));
  } else {
    auto whole = std::get<SentencePieceModel>(files.model);
    whole.adds_bos = files.adds_bos;
    whole.bos = files.bos;
    whole.eos = files.eos;
    drop_padding(whole.pieces);
    write_file(folder / "tokenizer.json", tokenizer_json(whole));
    config = json::parse(tokenizer_config_json(whole));
  }
  if (!files.chat_template.empty()) {
    config["chat_template"] = files.chat_template;
  }
  write_file(folder / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace specdec
