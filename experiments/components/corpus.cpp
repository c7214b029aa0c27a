#include "experiments/components/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"
#include "core/formats/strict_json.h"
#include "experiments/config/config_file.h"
#include "experiments/config/gzip_file.h"

namespace specdec {
namespace {

// Texts are encoded in pieces that end at a line: tokenizers need not be made for megabytes.
constexpr size_t kPiece = size_t{16} << 10U;

std::string_view without_end(std::string_view text, double held_out) {
  const auto target = static_cast<size_t>(static_cast<double>(text.size()) * (1.0 - held_out));
  const size_t cut = text.find('\n', target);
  return cut == std::string_view::npos ? text : text.substr(0, cut + 1);
}

std::string_view take_until_line_end(std::string_view& text, size_t least) {
  const size_t cut = text.find('\n', std::min(least, text.size()));
  const size_t size = cut == std::string_view::npos ? text.size() : cut + 1;
  const std::string_view taken = text.substr(0, size);
  text.remove_prefix(size);
  return taken;
}

class CorpusReader {
 public:
  explicit CorpusReader(const ModelFiles& target) : target_(target) {}

  void add_text(std::string_view text) {
    std::vector<Token> tokens;
    while (!text.empty()) {
      append_encoded(take_until_line_end(text, kPiece), tokens);
    }
    add(std::move(tokens));
  }

  void add_lines(std::string_view text) {
    for (int64_t number = 1; !text.empty(); ++number) {
      std::string_view line = take_until_line_end(text, 0);
      if (line.ends_with('\n')) {
        line.remove_suffix(1);
      }
      add_line(line, number);
    }
  }

  std::vector<std::vector<Token>> documents;

 private:
  void add(std::vector<Token> tokens) {
    if (!tokens.empty()) {
      documents.push_back(std::move(tokens));
    }
  }

  void add_line(std::string_view line, int64_t number) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      return;
    }
    const nlohmann::json json = value_of(line, number);
    if (!json.is_object() || !json.contains("tokens")) {
      std::vector<Token> tokens;
      append_encoded(line, tokens);
      add(std::move(tokens));
      return;
    }
    if (!json["tokens"].is_array()) {
      throw ConfigError(fmt::format("line {}: 'tokens' is no list of ids", number));
    }
    add(answer_tokens(json, number));
  }

  static nlohmann::json value_of(std::string_view line, int64_t number) {
    try {
      return parse_json_line(line);
    } catch (const std::exception& error) {
      throw ConfigError(fmt::format("line {}: {}; of a .jsonl file each line is one value", number,
                                    plain_json_message(error)));
    }
  }

  /// The answer in a line of `specdec answers`, which begins at token 'answer'; of other lines all
  /// tokens.
  std::vector<Token> answer_tokens(const nlohmann::json& json, int64_t number) const {
    std::vector<Token> tokens;
    for (const auto& id : json["tokens"]) {
      const int64_t value = id.is_number_integer() ? id.get<int64_t>() : -1;
      if (value < 0 || value >= target_.config.vocab_size) {
        throw ConfigError(fmt::format("line {}: {} is no token of the target, which has {}", number,
                                      id.dump(), target_.config.vocab_size));
      }
      tokens.push_back(static_cast<Token>(value));
    }
    if (!json.contains("answer")) {
      return tokens;
    }
    const auto& answer = json["answer"];
    const int64_t begin = answer.is_number_integer() ? answer.get<int64_t>() : -1;
    if (begin < 0 || begin > std::ssize(tokens)) {
      throw ConfigError(
          fmt::format("line {}: 'answer' is {}; it is the place from 0 to {} where "
                      "the answer begins among the tokens",
                      number, answer.dump(), tokens.size()));
    }
    tokens.erase(tokens.begin(), tokens.begin() + begin);
    return tokens;
  }

  void append_encoded(std::string_view text, std::vector<Token>& tokens) const {
    if (target_.tokenizer == nullptr) {
      throw ConfigError(target_.no_text(fmt::format(
          "is text, but {} has no tokenizer (tokenizer.model or tokenizer.json); give .jsonl "
          "files with 'tokens'",
          target_.folder.string())));
    }
    const std::vector<Token> piece = target_.tokenizer->encode(text);
    tokens.insert(tokens.end(), piece.begin(), piece.end());
  }

  const ModelFiles& target_;
};

void read_source(const ConfigNode& source, CorpusReader& reader) {
  const auto file = source.require_path("file");
  const auto held_out = source.get<double>("held_out", 0.0, {0.0, 0.99});
  source.refuse_unknown_keys();
  if (file.empty()) {
    return;
  }
  try {
    const std::string text = read_text_file(file);
    const std::string_view kept = held_out > 0.0 ? without_end(text, held_out) : text;
    const size_t before = reader.documents.size();
    if (text_extension(file) == ".jsonl") {
      reader.add_lines(kept);
    } else {
      reader.add_text(kept);
    }
    if (reader.documents.size() == before) {
      throw ConfigError("holds no tokens");
    }
  } catch (const Error& error) {
    source.fail("file", fmt::format("{}: {}", file.string(), error.what()));
  }
}

}  // namespace

std::vector<std::vector<Token>> read_corpus(const ConfigNode& node, const std::string& key,
                                            const RunPlan& plan, bool required) {
  if (!required && !node.has(key)) {
    node.ignore(key);
    return {};
  }
  if (!node.has(key)) {
    node.fail(
        fmt::format("the key '{}' is missing; give text files, such as [{{file: "
                    "models/corpus/shakespeare.txt.gz}}]",
                    key));
    node.ignore(key);
    return {};
  }
  const std::vector<ConfigNode> sources = node.children(key);
  if (plan.target == nullptr) {
    return {};
  }
  CorpusReader reader(*plan.target);
  for (const ConfigNode& source : sources) {
    read_source(source, reader);
  }
  if (sources.empty() && node.is_list(key)) {
    node.fail(key,
              "the list is empty; give files, such as [{file: models/corpus/shakespeare.txt.gz}]");
  }
  return std::move(reader.documents);
}

}  // namespace specdec
