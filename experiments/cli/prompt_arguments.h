#pragma once
#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "experiments/components/model_files.h"

namespace specdec {

/// The prompt of a command: a text, a file with one, or the ids of its tokens.
struct PromptArguments {
  std::optional<std::string> text, file, tokens;
  bool chat = false;  ///< a user turn in the checkpoint's chat format
};

/// Adds --prompt, --prompt-file, --tokens and --chat; the arguments outlive the command.
void add_prompt_options(CLI::App& command, PromptArguments& arguments);

/// Throws ConfigError unless one prompt is given.
void check_prompt_arguments(const PromptArguments& arguments);

/// The prompt's tokens; in a chat `tools` are what its template says of tools. Throws ConfigError
/// for a text that is empty or not UTF-8, and for a model that has no tokenizer.
std::vector<Token> prompt_tokens(const PromptArguments& arguments, const ModelFiles& files,
                                 std::string_view tools);

}  // namespace specdec
