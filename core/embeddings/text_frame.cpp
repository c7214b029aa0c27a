#include "core/embeddings/text_frame.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/formats/file_content.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"
#include "core/formats/tokenizer_json_sax.h"

namespace specdec {
namespace {

using nlohmann::json;

/// The steps of a post-processor: its own, or those of a Sequence.
json processor_steps(const json& processor) {
  const json& steps = json_member(processor, "processors");
  return steps.is_array() ? steps : json::array({processor});
}

Token template_token(const json& piece, const Tokenizer& tokenizer, const std::string& where) {
  const auto token =
      piece.is_string() ? tokenizer.find_piece(piece.get<std::string>()) : std::nullopt;
  if (!token) {
    throw WeightsError(fmt::format(
        "{}: post_processor: the special token {} is not in the vocabulary", where, piece.dump()));
  }
  return *token;
}

/// What stands around the text in the "single" of a TemplateProcessing.
TextFrame frame_of_template(const json& single, const Tokenizer& tokenizer,
                            const std::string& where) {
  TextFrame frame;
  bool after = false;
  for (const json& part : single) {
    const json& special = json_member(part, "SpecialToken");
    if (special.is_object()) {
      (after ? frame.after : frame.before)
          .push_back(template_token(json_member(special, "id"), tokenizer, where));
    } else {
      after = true;
    }
  }
  return frame;
}

/// The frame of the template in a file; nothing where the file, or a template in it, is missing.
std::optional<TextFrame> read_template(const std::filesystem::path& file,
                                       const Tokenizer& tokenizer) {
  if (!has_entry(file)) {
    return std::nullopt;
  }
  const TokenizerJsonText text = split_tokenizer_json(read_file(file), file.string());
  for (const json& step : processor_steps(json_member(text.rest, "post_processor"))) {
    const json& single = json_member(step, "single");
    if (json_member(step, "type") == "TemplateProcessing" && single.is_array()) {
      return frame_of_template(single, tokenizer, file.string());
    }
  }
  return std::nullopt;
}

TextFrame tokenizer_frame(const Tokenizer& tokenizer) {
  TextFrame frame;
  if (tokenizer.adds_bos() && tokenizer.bos()) {
    frame.before.push_back(*tokenizer.bos());
  }
  return frame;
}

void add_end(bool wanted, const Tokenizer& tokenizer, TextFrame& frame) {
  if (wanted && frame.after.empty() && tokenizer.eos()) {
    frame.after.push_back(*tokenizer.eos());
  }
}

}  // namespace

TextFrame read_text_frame(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  const auto written = read_template(folder / "tokenizer.json", tokenizer);
  TextFrame frame = written ? *written : tokenizer_frame(tokenizer);
  const auto config = folder / "tokenizer_config.json";
  if (has_entry(config)) {
    const json parsed = parse_json_object(read_file(config), config.string());
    add_end(JsonKeys(parsed, config.string()).boolean("add_eos_token", false), tokenizer, frame);
  }
  return frame;
}

TextFrame read_text_frame(const GgufMetadata& metadata, const Tokenizer& tokenizer) {
  TextFrame frame = tokenizer_frame(tokenizer);
  add_end(metadata.boolean("tokenizer.ggml.add_eos_token", false), tokenizer, frame);
  return frame;
}

}  // namespace specdec
