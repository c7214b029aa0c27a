#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/json_text.h"
#include "core/formats/utf8.h"
#include "core/hub_cache.h"
#include "core/tokenizers/byte_level_tokenizer.h"
#include "core/tokenizers/special_encoder.h"
#include "core/tokenizers/tokenizer.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/text_line.h"
#include "experiments/terminal/json_option.h"
#include "experiments/terminal/plain_text.h"

namespace specdec {
namespace {

struct TokenizeArguments {
  std::string model, text, file;
  bool special = false;
  JsonOption json;
};

/// Encodes as the flags say.
class TextEncoder {
 public:
  TextEncoder(const Tokenizer& tokenizer, bool special) : tokenizer_(tokenizer) {
    if (special) {
      special_ = std::make_unique<SpecialEncoder>(tokenizer);
    }
  }
  std::vector<Token> encode(const std::string& text) const {
    return special_ != nullptr ? special_->encode(text) : tokenizer_.encode(text);
  }

 private:
  const Tokenizer& tokenizer_;
  std::unique_ptr<SpecialEncoder> special_;
};

std::string spelled(const Tokenizer& tokenizer, Token token) {
  const auto bytes = tokenizer.token_bytes(token);
  return std::string(bytes.empty() ? tokenizer.piece(token) : bytes);
}

/// The text in NFC, to which some tokenizers bring it; bytes that are not UTF-8 stay as they are.
std::string composed_runs(std::string_view text) {
  std::string out;
  for (const Utf8Run& run : utf8_runs(text)) {
    out += run.valid ? composed(run.text) : std::string(run.text);
  }
  return out;
}

/// True when the vocabulary has no symbols for some bytes of the text, which are dropped: then they
/// are not among those of the tokens, in their order. A tokenizer may compose the text, and put
/// spaces into it.
bool is_lossy(const Tokenizer& tokenizer, const std::vector<Token>& ids, const std::string& text) {
  std::string spelled_out;
  for (const Token token : ids) {
    spelled_out += spelled(tokenizer, token);
  }
  const std::string wanted = composed_runs(text);
  auto next = wanted.begin();
  for (const char byte : composed_runs(spelled_out)) {
    next += next != wanted.end() && *next == byte ? 1 : 0;
  }
  return next != wanted.end();
}

nlohmann::json text_json(const Tokenizer& tokenizer, const std::vector<Token>& ids,
                         const std::string& text) {
  nlohmann::json pieces = nlohmann::json::array();
  for (const Token token : ids) {
    pieces.push_back(tokenizer.piece(token));
  }
  return {{"ids", ids}, {"pieces", pieces}, {"lossless", !is_lossy(tokenizer, ids, text)}};
}

int tokenize_text(const CommandContext& context, const TokenizeArguments& arguments,
                  const Tokenizer& tokenizer) {
  require_utf8(arguments.text, "--text");
  JsonOutput json(arguments.json, context.out);
  const auto ids = TextEncoder(tokenizer, arguments.special).encode(arguments.text);
  const auto print = [&](std::ostream& out) {
    for (const Token token : ids) {
      out << fmt::format("{:>7}  {}\n", token,
                         json_text(nlohmann::json(spelled(tokenizer, token))));
    }
    if (is_lossy(tokenizer, ids, arguments.text)) {
      out << "note: the vocabulary has no symbols for some bytes of the text, which are dropped\n";
    }
  };
  json.write_result(print, [&](std::ostream& out) {
    out << json_text(text_json(tokenizer, ids, arguments.text)) << '\n';
  });
  return 0;
}

int tokenize_file(const CommandContext& context, const TokenizeArguments& arguments,
                  const Tokenizer& tokenizer) {
  if (const std::string kind = irregular_kind(arguments.file); !kind.empty()) {
    throw ConfigError(fmt::format("{}: cannot be read: it is {}", arguments.file, kind));
  }
  std::ifstream lines(arguments.file);
  if (!lines) {
    throw ConfigError(fmt::format("{}: cannot be read: {}", arguments.file, std::strerror(errno)));
  }
  JsonOutput json(arguments.json, context.out);
  const TextEncoder encoder(tokenizer, arguments.special);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    const std::string text =
        parse_text_line(line, fmt::format("{}:{}", arguments.file, number))["text"];
    const std::string ids = json_text(nlohmann::json{{"ids", encoder.encode(text)}}) + "\n";
    json.is_wanted() ? json.write(ids) : void(context.out << ids);
  }
  json.commit();
  return 0;
}

int tokenize(const CommandContext& context, const TokenizeArguments& arguments, bool has_text) {
  refuse_model_flags(context.flags, "tokenize loads no model, but its tokenizer; leave it out");
  if (has_text == !arguments.file.empty()) {
    throw ConfigError("tokenize needs one of --text and --file");
  }
  const auto tokenizer = load_tokenizer(find_model(arguments.model));
  return has_text ? tokenize_text(context, arguments, *tokenizer)
                  : tokenize_file(context, arguments, *tokenizer);
}

}  // namespace

void add_tokenize_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("tokenize", "show the tokens of a text");
  const auto arguments = std::make_shared<TokenizeArguments>();
  command
      ->add_option("MODEL", arguments->model, kModelHelp + std::string(", or a tokenizer's file"))
      ->required();
  const auto* text = command->add_option("--text", arguments->text, "the text");
  command->add_option("--file", arguments->file,
                      "a file of lines {\"text\": ...}; prints a line {\"ids\": [...]} for each");
  command->add_flag("--special", arguments->special,
                    "control pieces in the text (\"<|im_end|>\") stand for themselves");
  add_json_option(*command, arguments->json, "ids and pieces of --text; the lines of --file");
  command->footer(
      "Without <bos>. Ids are those of Hugging Face's tokenizers; control pieces are text unless\n"
      "--special is given. Examples:\n"
      "  specdec tokenize models/target --text 'Once upon a time'\n"
      "  specdec tokenize models/target --file texts.jsonl");
  command->callback([&context, arguments, text] {
    const bool has_text = text->count() > 0;
    context.action = [&context, arguments, has_text] {
      return tokenize(context, *arguments, has_text);
    };
  });
}

}  // namespace specdec
