#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace specdec {

/// A tokenizer.json as read: its two long lists apart from the rest, because a JSON tree of half a
/// million merges takes seconds and gigabytes.
struct TokenizerJsonText {
  nlohmann::json rest;  ///< all but model.vocab and model.merges
  std::vector<std::pair<std::string, uint64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;
  bool has_vocab = false;
  bool has_merges = false;
};

/// Throws WeightsError with line and column when the text is not JSON, and when a list holds what
/// it should not or a key comes twice.
TokenizerJsonText split_tokenizer_json(std::string_view text, const std::string& where);

/// The highest id of a tokenizer.json's added tokens; nothing where it has none. Quick: what
/// follows them, as the model does in the files of Hugging Face's library, is not read.
std::optional<uint64_t> last_added_id(std::string_view text);

/// A flag of a token, false where it is missing. Throws WeightsError, which begins with `place`,
/// for what is no boolean.
bool token_flag(const nlohmann::json& token, const char* flag, const std::string& place);

/// That of entry `index` of the added_tokens of the file `where`.
bool added_token_flag(const nlohmann::json& token, const char* flag, size_t index,
                      const std::string& where);

}  // namespace specdec
