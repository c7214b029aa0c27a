#include "experiments/cli/prompt_arguments.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "core/error.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/text_line.h"
#include "experiments/config/config_file.h"
#include "experiments/run/prompts.h"

namespace specdec {

/// Sets `value` where the option is given, to an empty text too.
static void add_text(CLI::App& command, const std::string& name, std::optional<std::string>& value,
                     const std::string& help) {
  command.add_option_function<std::string>(
      name, [&value](const std::string& text) { value = text; }, help);
}

void add_prompt_options(CLI::App& command, PromptArguments& arguments) {
  add_text(command, "--prompt", arguments.text, "the text to continue");
  add_text(command, "--prompt-file", arguments.file, "read the prompt from a file");
  add_text(command, "--tokens", arguments.tokens, "token ids to continue, such as 2,5,7");
  command.add_flag("--chat", arguments.chat,
                   "treat the prompt as a user turn in the checkpoint's chat format");
}

void check_prompt_arguments(const PromptArguments& arguments) {
  const int sources = int{arguments.text.has_value()} + int{arguments.file.has_value()} +
                      int{arguments.tokens.has_value()};
  if (sources != 1) {
    throw ConfigError("give one of --prompt, --prompt-file and --tokens");
  }
}

/// The text of --prompt or --prompt-file. Throws ConfigError for one that is empty or not UTF-8.
static std::string read_prompt(const PromptArguments& arguments, const ModelFiles& files) {
  const std::string source = arguments.text ? "--prompt" : *arguments.file;
  std::string text =
      arguments.text ? *arguments.text : read_text_file(*arguments.file, size_t{64} << 20U);
  if (text.empty()) {
    const Token first = files.tokenizer->bos().value_or(files.config.bos_id);
    throw ConfigError(fmt::format(
        "{}: the prompt is empty; {}", source,
        first < 0 || arguments.chat
            ? "give a text"
            : fmt::format("to generate from nothing, give the token that begins texts: --tokens {}",
                          first)));
  }
  require_utf8(text, source);
  return text;
}

std::vector<Token> prompt_tokens(const PromptArguments& arguments, const ModelFiles& files,
                                 std::string_view tools) {
  if (arguments.tokens) {
    if (arguments.chat) {
      throw ConfigError("--chat needs a text: give --prompt, not --tokens");
    }
    return parse_token_list(*arguments.tokens);
  }
  if (files.tokenizer == nullptr) {
    throw ConfigError(
        files.no_text(fmt::format("{} has no tokenizer (tokenizer.model or tokenizer.json): give "
                                  "--tokens instead of a text",
                                  files.folder.string())));
  }
  const std::string text = read_prompt(arguments, files);
  return encode_prompt(*files.tokenizer, {{"user", text}}, arguments.chat, files.config.bos_id,
                       tools);
}

}  // namespace specdec
