#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat.h"
#include "core/tokenizers/tokenizer.h"
#include "core/types.h"
#include "experiments/metrics/scorers.h"

namespace specdec {

/// One line of a prompts file.
struct Prompt {
  std::string id;  ///< the line's `id` or `question_id`, else its line number
  std::string category;
  std::vector<std::string> turns;  ///< the user's turns; empty if tokens are given
  std::vector<Token> tokens;       ///< the prompt as ids, for models without a tokenizer
  std::string schema = {};  ///< JSON text of the JSON Schema that the answer must satisfy, or ""
  /// JSON text of the list of tools that a chat template is given, or ""; for chats only.
  std::string tools = {};
  std::vector<std::string> adapters = {};  ///< names of those of the model that it runs with
  /// Answer keys by turn: what its answer must be, or none; empty when the line names no `scorer`.
  std::vector<std::optional<AnswerKey>> answer_keys = {};
  std::vector<std::string> unread_keys = {};  ///< of the line: for other tools
  uint32_t number = 0;  ///< of the first turn among all turns of the file: keys randomness
};

/// Reads JSON Lines. Each line is an object with one of `turns` (a list of texts, as in
/// Spec-Bench), `prompt` (a text) or `tokens` (a list of ids), and optionally `category`, `id`
/// (or `question_id`), `schema` (a JSON Schema), `tools` (a list), `adapter` (a name
/// in model.adapters, or a list of them), and `scorer` with `reference`
/// (see make_answer_key; a text, or for several turns a list with one text or null each, as
/// Spec-Bench has); other keys are ignored (but one that is nearly one of these is a mistake),
/// blank lines skipped. A `reference` without a `scorer` is ignored too. Throws ConfigError naming
/// file and line: all broken lines at once, up to ten; a file without prompts; an id given twice.
std::vector<Prompt> read_prompts(const std::filesystem::path& file);

/// The tokens to continue. `history` holds the turns so far, the user's and the model's: as the
/// chat template has them, which is given the `tools` (see encode_chat), or without `chat` as plain
/// text after <bos>, with an empty line between two turns.
std::vector<Token> encode_prompt(const Tokenizer& tokenizer, const std::vector<ChatTurn>& history,
                                 bool chat, Token bos, std::string_view tools = {});

/// The text of tokens as UTF-8: what cannot be a character is U+FFFD. "" without a tokenizer.
std::string decode_text(const Tokenizer* tokenizer, TokenSpan tokens);

}  // namespace specdec
