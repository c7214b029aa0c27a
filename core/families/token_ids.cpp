#include "core/families/token_ids.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/formats/file_content.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"

namespace specdec {
namespace {

/// The ids under a key that is there: of one id, or of a list of them.
std::vector<Token> read_token_ids(const JsonKeys& keys, const char* key, int64_t vocab_size) {
  using nlohmann::json;
  std::vector<Token> ids;
  const json& value = keys.at(key);
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0) {
      keys.fail(key, fmt::format("should be a token id or a list of them, but is {}",
                                 describe_json(value)));
    }
    if (id.get<int64_t>() < vocab_size) {
      ids.push_back(static_cast<Token>(id.get<int64_t>()));
    }
  }
  return ids;
}

}  // namespace

std::vector<Token> read_end_ids(const JsonKeys& keys, int64_t vocab_size) {
  return keys.has("eos_token_id") ? read_token_ids(keys, "eos_token_id", vocab_size)
                                  : std::vector<Token>();
}

namespace {

/// The ids under a key of the generation_config.json in a folder; nothing where there is no such
/// file or it does not have the key.
std::optional<std::vector<Token>> read_generation_ids(const std::filesystem::path& folder,
                                                      const char* key, int64_t vocab_size) {
  const auto path = folder / "generation_config.json";
  if (!has_entry(path)) {
    return std::nullopt;
  }
  const auto parsed = parse_json_object(read_file(path), path.string());
  const JsonKeys keys(parsed, path.string());
  return keys.has(key) ? std::optional(read_token_ids(keys, key, vocab_size)) : std::nullopt;
}

}  // namespace

std::optional<std::vector<Token>> read_generation_ends(const std::filesystem::path& folder,
                                                       int64_t vocab_size) {
  return read_generation_ids(folder, "eos_token_id", vocab_size);
}

std::vector<Token> read_suppressed(const std::filesystem::path& folder, int64_t vocab_size) {
  return read_generation_ids(folder, "suppress_tokens", vocab_size).value_or(std::vector<Token>());
}

Token read_bos_id(const JsonKeys& keys, int64_t vocab_size, Token fallback) {
  if (!keys.has("bos_token_id")) {  // null means none, a missing key what the class says
    return keys.contains("bos_token_id") ? -1 : fallback;
  }
  const auto ids = read_token_ids(keys, "bos_token_id", vocab_size);
  return ids.empty() ? -1 : ids.front();
}

}  // namespace specdec
