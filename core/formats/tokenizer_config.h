#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace specdec {

/// What the files beside a tokenizer say of how it is used.
struct TokenizerConfig {
  std::map<std::string, std::string> pieces = {};  ///< by key: bos_token, eos_token, pad_token
  std::optional<bool> adds_bos = {};               ///< add_bos_token
  std::string chat_template = {};                  ///< jinja; "" = none
  std::string chat_template_file = {};             ///< that it was read from
};

/// Parses a tokenizer_config.json; of several chat templates it takes the one called "default".
/// Throws WeightsError naming `where` and the key: no JSON object, a value or a token's flag of
/// another type.
TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& where);

/// Reads a folder's tokenizer_config.json, then from special_tokens_map.json what that leaves open,
/// then chat_template.jinja, whose template replaces the others, as for transformers' tokenizers.
/// chat_template.json, which its processors alone read, counts where these have no template. Each
/// file may be missing.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

}  // namespace specdec
