#include "core/formats/tokenizer_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "core/formats/tokenizer_json_sax.h"
#include "core/formats/utf8.h"

namespace specdec {
namespace {

using nlohmann::json;

/// The members of one config's object, with errors that name key and file.
class ConfigReader {
 public:
  ConfigReader(const json& config, const std::string& where) : config_(config), where_(where) {}

  void read_piece(const char* key, TokenizerConfig& result) const {
    const json& value = json_member(config_, key);
    if (!value.is_null()) {
      result.pieces[key] = piece_text(key, value);
    }
  }

  /// Refuses what names special tokens in another way than as pieces.
  void check_pieces() const {
    for (const char* key : {"unk_token", "sep_token", "cls_token", "mask_token"}) {
      const json& value = json_member(config_, key);
      if (!value.is_null()) {
        (void)piece_text(key, value);
      }
    }
    constexpr const char* kMore = "additional_special_tokens";
    const json& more = json_member(config_, kMore);
    if (!more.is_null() && !more.is_array()) {
      fail(kMore, "must be a list of pieces");
    }
    for (const json& one : more) {
      (void)piece_text(kMore, one);
    }
  }

  std::optional<bool> read_flag(const char* key) const {
    const json& value = json_member(config_, key);
    if (value.is_null()) {
      return std::nullopt;
    }
    if (!value.is_boolean()) {
      fail(key, "must be true or false");
    }
    return value.get<bool>();
  }

  std::string chat_template() const {
    constexpr const char* kKey = "chat_template";
    const json& value = json_member(config_, kKey);
    if (value.is_null()) {
      return "";
    }
    if (value.is_string()) {
      return value.get<std::string>();
    }
    if (value.is_object() && json_member(value, "default").is_string()) {  // a processor's
      return value["default"].get<std::string>();
    }
    std::optional<std::string> result;
    for (const json& one : value.is_array() ? value : json::array({nullptr})) {
      if (!json_member(one, "name").is_string() || !json_member(one, "template").is_string()) {
        fail(kKey, "must be a text, or a list of objects with the texts \"name\" and \"template\"");
      }
      if (json_member(one, "name") == "default") {
        result = json_member(one, "template").get<std::string>();
      }
    }
    if (!result) {
      fail(kKey, "is a list of templates none of which is called \"default\"; name one so");
    }
    return *result;
  }

 private:
  /// A piece is written as its text, or as an object that has it, with flags.
  std::string piece_text(const char* key, const json& value) const {
    const json& content = value.is_object() ? json_member(value, "content") : value;
    if (!content.is_string()) {
      fail(key, "must be a piece's text, or an object with its text as \"content\"");
    }
    const std::string place = fmt::format("{}: '{}'", where_, key);
    for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized", "special"}) {
      (void)token_flag(value, flag, place);
    }
    return content.get<std::string>();
  }
  [[noreturn]] void fail(const char* key, const char* what) const {
    throw WeightsError(fmt::format("{}: '{}' {}.", where_, key, what));
  }

  const json& config_;
  const std::string& where_;
};

/// The template of a chat_template.json, which processors of transformers kept before
/// chat_template.jinja.
std::string read_processor_template(const std::filesystem::path& file) {
  const std::string where = file.string();
  const json config = parse_json_object(read_file(file), where);
  return ConfigReader(config, where).chat_template();  // "" where it is null or missing
}

/// A chat template's text, which may not be empty: an empty one means that there is none.
std::string read_chat_template(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  refuse_placeholder(text, file.string());
  if (text.empty() || !is_utf8(text)) {
    throw WeightsError(fmt::format("{}: {}. Download the file again.", file.string(),
                                   text.empty() ? "is empty" : "is no chat template: not UTF-8"));
  }
  return text;
}

}  // namespace

TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& where) {
  const json config = parse_strict_json(text, where);
  if (!config.is_object()) {
    throw WeightsError(fmt::format("{}: it must hold a JSON object.", where));
  }
  const ConfigReader reader(config, where);
  TokenizerConfig result;
  for (const char* key : {"bos_token", "eos_token", "pad_token"}) {
    reader.read_piece(key, result);
  }
  result.adds_bos = reader.read_flag("add_bos_token");
  reader.check_pieces();
  result.chat_template = reader.chat_template();
  result.chat_template_file = result.chat_template.empty() ? "" : where;
  return result;
}

TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder) {
  TokenizerConfig result;
  const auto config = folder / "tokenizer_config.json";
  if (has_entry(config)) {
    result = parse_tokenizer_config(read_file(config), config.string());
  }
  const auto map = folder / "special_tokens_map.json";
  if (has_entry(map)) {
    result.pieces.merge(parse_tokenizer_config(read_file(map), map.string()).pieces);
  }
  const auto jinja = folder / "chat_template.jinja";
  if (has_entry(jinja)) {
    result.chat_template = read_chat_template(jinja);
    result.chat_template_file = jinja.string();
  }
  const auto processor = folder / "chat_template.json";
  if (result.chat_template.empty() && has_entry(processor)) {
    result.chat_template = read_processor_template(processor);
    result.chat_template_file = result.chat_template.empty() ? "" : processor.string();
  }
  return result;
}

}  // namespace specdec
