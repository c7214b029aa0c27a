#include "experiments/cli/passages.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "experiments/cli/text_line.h"
#include "experiments/config/config_file.h"
#include "experiments/run/prompts.h"

namespace specdec {
namespace {

Passage encode_text(const std::string& id, const std::string& text, const ModelFiles& files) {
  if (files.tokenizer == nullptr) {
    throw ConfigError(
        files.no_text(fmt::format("{} has no tokenizer (tokenizer.model or tokenizer.json): give "
                                  "a .jsonl file whose lines hold \"tokens\"",
                                  files.folder.string())));
  }
  std::vector<Token> tokens =
      encode_prompt(*files.tokenizer, {{"user", text}}, false, files.config.bos_id);
  const int64_t context = std::ssize(files.tokenizer->token_bytes(tokens.front()));  // <bos>: 0
  return {id, std::move(tokens), std::ssize(text) - context};
}

std::string read_utf8(const std::filesystem::path& file) {
  std::string text = read_text_file(file);
  require_utf8(text, file.string(), "give a text, or prompts (.jsonl)");
  return text;
}

}  // namespace

std::vector<Passage> read_passages(const std::filesystem::path& file, const ModelFiles& files) {
  std::vector<Passage> passages;
  if (file.extension() != ".jsonl") {
    passages.push_back(encode_text("", read_utf8(file), files));
  } else {
    for (const Prompt& prompt : read_prompts(file)) {
      if (!prompt.adapters.empty()) {
        throw ConfigError(
            fmt::format("{}: prompt '{}' asks for the adapter '{}', which only runs of configs "
                        "know: remove the key, and give --adapter",
                        file.string(), prompt.id, prompt.adapters.front()));
      }
      for (size_t turn = 0; turn < prompt.turns.size(); ++turn) {
        const auto suffix = prompt.turns.size() > 1 ? fmt::format("/{}", turn + 1) : "";
        passages.push_back(encode_text(prompt.id + suffix, prompt.turns[turn], files));
      }
      if (!prompt.tokens.empty()) {
        passages.push_back({prompt.id, prompt.tokens, 0});
      }
    }
  }
  const auto nothing = [](const Passage& passage) { return passage.tokens.size() < 2; };
  passages.erase(std::remove_if(passages.begin(), passages.end(), nothing), passages.end());
  if (passages.empty()) {
    throw ConfigError(
        fmt::format("{}: holds nothing to score: no token after the first", file.string()));
  }
  return passages;
}

std::vector<PassageWindow> split_passages(const std::vector<Passage>& passages, int64_t window) {
  std::vector<PassageWindow> windows;
  const auto most = static_cast<size_t>(window - 1);
  for (size_t passage = 0; passage < passages.size(); ++passage) {
    const TokenSpan tokens = passages[passage].tokens;
    for (size_t begin = 1; begin < tokens.size(); begin += most) {
      const TokenSpan part = tokens.subspan(begin, std::min(most, tokens.size() - begin));
      windows.push_back({passage, {tokens.front()}});
      windows.back().tokens.insert(windows.back().tokens.end(), part.begin(), part.end());
    }
  }
  return windows;
}

}  // namespace specdec
