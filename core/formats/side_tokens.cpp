#include "core/formats/side_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "core/formats/tokenizer_json_sax.h"

namespace specdec {
namespace {

using nlohmann::json;

/// Keys that name tokens, in the order in which transformers adds these.
constexpr const char* kNamingKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
constexpr const char* kMoreNames = "additional_special_tokens";
/// Ids that nothing has, at most, between two tokens of a model whose vocabulary is not known.
constexpr uint64_t kMostUnused = 65536;

/// A JSON file's object; an empty one where there is none.
json object_of(const std::filesystem::path& file) {
  if (!has_entry(file)) {
    return json::object();
  }
  json object = parse_strict_json(read_file(file), file.string());
  if (!object.is_object()) {
    throw WeightsError(fmt::format("{}: it must hold a JSON object.", file.string()));
  }
  return object;
}

/// The token that a value describes: its text, or an object with the text as "content"; nothing for
/// other values. `place` begins the complaint about a flag.
std::optional<SideToken> token_of(const json& value, const std::string& place) {
  const json& content = value.is_object() ? json_member(value, "content") : value;
  if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
    return std::nullopt;
  }
  SideToken token{.text = content.get<std::string>(), .id = 0, .special = false};
  if (value.is_object()) {
    token.special = token_flag(value, "special", place);
    token.flags = {.lstrip = token_flag(value, "lstrip", place),
                   .rstrip = token_flag(value, "rstrip", place),
                   .single_word = token_flag(value, "single_word", place)};
  }
  return token;
}

/// The special tokens that the files of a folder name, each once.
std::vector<SideToken> named_tokens(const json& config, const json& map, const std::string& where) {
  std::vector<SideToken> tokens;
  std::unordered_set<std::string> seen;
  const auto add = [&](const json& value) {
    auto token = token_of(value, where);
    if (token && seen.insert(token->text).second) {
      token->special = true;
      tokens.push_back(*std::move(token));
    }
  };
  for (const char* key : kNamingKeys) {
    add(map.contains(key) ? map[key] : config.value(key, json()));
  }
  for (const json* object : {&config, &map}) {
    const json list = object->value(kMoreNames, json());
    for (const json& one : list.is_array() ? list : json::array()) {
      add(one);
    }
  }
  return tokens;
}

std::vector<SideToken> decoder_tokens(const json& decoder, const std::string& where) {
  if (!decoder.is_object()) {
    throw WeightsError(
        fmt::format("{}: added_tokens_decoder must be an object of tokens by their ids, but is {}.",
                    where, describe_json(decoder)));
  }
  std::vector<SideToken> tokens;
  for (const auto& [key, value] : decoder.items()) {
    const std::string place = fmt::format("{}: added_tokens_decoder: \"{}\"", where, key);
    auto token = value.is_object() ? token_of(value, place) : std::nullopt;
    const char* end = key.data() + key.size();
    if (!token || std::from_chars(key.data(), end, token->id).ptr != end || key.empty()) {
      throw WeightsError(fmt::format(
          "{}: added_tokens_decoder must hold objects with a text \"content\" by their ids, but "
          "\"{}\" is {}.",
          where, key, value.dump()));
    }
    tokens.push_back(*std::move(token));
  }
  return tokens;
}

std::vector<SideToken> listed_tokens(const std::filesystem::path& file,
                                     const std::vector<SideToken>& named) {
  std::vector<SideToken> tokens;
  const json ids = object_of(file);
  for (const auto& [text, id] : ids.items()) {
    if (!id.is_number_unsigned() || text.empty()) {
      throw WeightsError(fmt::format("{}: the id of \"{}\" must be a whole number, but is {}.",
                                     file.string(), text, id.dump()));
    }
    const bool special =
        std::any_of(named.begin(), named.end(),
                    [&wanted = text](const SideToken& one) { return one.text == wanted; });
    tokens.push_back({.text = text, .id = id.get<uint64_t>(), .special = special});
  }
  return tokens;
}

/// Adds tokens that are named without an id: they get that of the piece or listed token with their
/// text, else the next free one.
void add_named(std::vector<SideToken>& tokens, const std::vector<SideToken>& named,
               const std::vector<SentencePiece>& pieces) {
  tokens.reserve(tokens.size() + named.size());  // `ids` refers to their texts
  std::unordered_map<std::string_view, uint64_t> ids;
  for (size_t id = 0; id < pieces.size(); ++id) {
    ids.emplace(pieces[id].text, id);
  }
  std::unordered_set<std::string> listed;
  for (const SideToken& token : tokens) {
    ids.emplace(token.text, token.id);
    listed.insert(token.text);
  }
  for (const SideToken& token : named) {
    if (!listed.contains(token.text)) {
      const uint64_t next = ids.size();
      tokens.push_back(token);
      tokens.back().id = ids.emplace(token.text, next).first->second;
    }
  }
}

/// Puts side tokens into a model's pieces.
class PieceAdder {
 public:
  PieceAdder(const std::filesystem::path& folder, SentencePieceModel& model)
      : folder_(folder), model_(model), read_(model.pieces.size()) {
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      ids_.emplace(model.pieces[id].text, id);
    }
  }

  void add(SideToken& token) {
    const auto known = ids_.find(token.text);
    if ((known != ids_.end() && known->second != token.id) || !given_.insert(token.id).second) {
      fail(token, known != ids_.end() && known->second != token.id
                      ? fmt::format("tokenizer.model has it with id {}", known->second)
                      : "another token has that id too");
    }
    const size_t size = model_.pieces.size();
    if (token.id >= size + kMostUnused) {
      fail(token, fmt::format("the other ids end at {}", size - 1));
    }
    if (token.id >= size) {
      model_.pieces.resize(token.id + 1, {.text = "", .score = 0.0F, .type = PieceType::kUnused});
    }
    place(token, model_.pieces[token.id]);
  }

 private:
  [[noreturn]] void fail(const SideToken& token, const std::string& why) const {
    throw WeightsError(fmt::format(
        "{}: the files beside tokenizer.model give the token {} the id {}, but {}. Write a "
        "tokenizer.json into the folder: transformers' "
        "AutoTokenizer.from_pretrained(folder).save_pretrained(folder).",
        folder_.string(), token.text, token.id, why));
  }

  void place(SideToken& token, SentencePiece& piece) {
    const bool same = piece.text == token.text;
    const bool normal = piece.type == PieceType::kNormal;
    const bool new_piece = token.id >= read_;
    if (!same && (piece.type == PieceType::kByte || piece.type == PieceType::kUnknown)) {
      fail(token, fmt::format("that is the piece {} of tokenizer.model", piece.text));
    }
    token.changed = !new_piece && (!same || normal);
    if (!same || normal) {
      piece.text = token.text;
      piece.type = token.special ? PieceType::kControl : PieceType::kUserDefined;
      ids_.emplace(token.text, token.id);
    }
    // SentencePiece finds its own user-defined pieces, but puts no space behind them.
    const bool finds = !new_piece && !token.changed && !token.flags.any() &&
                       model_.prefix_space == PrefixSpace::kNone;
    token.matched = piece.type == PieceType::kUserDefined && !finds;
  }

  const std::filesystem::path& folder_;
  SentencePieceModel& model_;
  size_t read_;  // pieces of tokenizer.model
  std::unordered_map<std::string, uint64_t> ids_;
  std::unordered_set<uint64_t> given_;
};

}  // namespace

std::vector<SideToken> read_side_tokens(const std::filesystem::path& folder,
                                        const std::vector<SentencePiece>& pieces) {
  const auto config_file = folder / "tokenizer_config.json";
  const json config = object_of(config_file);
  const bool has_decoder = !json_member(config, "added_tokens_decoder").is_null();
  const json map = has_decoder ? json::object() : object_of(folder / "special_tokens_map.json");
  const std::vector<SideToken> named = named_tokens(config, map, folder.string());
  std::vector<SideToken> tokens =
      has_decoder ? decoder_tokens(config["added_tokens_decoder"], config_file.string())
                  : listed_tokens(folder / "added_tokens.json", named);
  add_named(tokens, named, pieces);
  std::sort(tokens.begin(), tokens.end(),
            [](const SideToken& a, const SideToken& b) { return a.id < b.id; });
  return tokens;
}

std::vector<SideToken> add_side_tokens(const std::filesystem::path& folder, uint64_t vocab_size,
                                       SentencePieceModel& model) {
  std::vector<SideToken> tokens = read_side_tokens(folder, model.pieces);
  std::erase_if(tokens, [&](const SideToken& token) { return token.id >= vocab_size; });
  if (!tokens.empty()) {
    PieceAdder adder(folder, model);
    for (SideToken& token : tokens) {
      adder.add(token);
    }
  }
  return tokens;
}

}  // namespace specdec
