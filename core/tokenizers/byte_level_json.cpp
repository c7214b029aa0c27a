#include "core/tokenizers/byte_level_json.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/formats/piece_table.h"
#include "core/formats/strict_json.h"
#include "core/tokenizers/byte_symbols.h"
#include "core/tokenizers/pre_tokenizer.h"

namespace specdec {
namespace {

using nlohmann::json;

/// The steps of a normalizer or pre_tokenizer: those of a Sequence, else itself.
std::vector<json> steps_of(const json& step, const char* list) {
  if (step.is_null()) {
    return {};
  }
  if (json_member(step, "type") != "Sequence") {
    return {step};
  }
  std::vector<json> all;
  for (const json& inner : json_member(step, list)) {
    const auto nested = steps_of(inner, list);
    all.insert(all.end(), nested.begin(), nested.end());
  }
  return all;
}

class ByteLevelReader {
 public:
  ByteLevelReader(const TokenizerJsonText& text, const std::string& where)
      : text_(text),
        where_(where),
        pieces_(text.vocab.size() + json_member(text.rest, "added_tokens").size(), where) {}

  ByteLevelModel read(const TokenizerConfig& config) {
    read_model();
    read_normalizer();
    read_pre_tokenizer();
    read_vocabulary();
    read_added_tokens();
    check_ids();
    read_merges();
    read_post_processor();
    read_config(config);
    model_.pieces = pieces_.take();
    keep_bytes();
    check_added();
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw WeightsError(fmt::format("{}: {}", where_, what));
  }

  void read_model() {
    const json& model = json_member(text_.rest, "model");
    const json& type = json_member(model, "type");
    if (!type.is_null() && type != "BPE") {
      fail(fmt::format("model.type {} is not supported; known: BPE.", type.dump()));
    }
    if (!text_.has_vocab || !text_.has_merges) {
      fail(fmt::format("it has no \"model.{}.",
                       text_.has_vocab ? "merges\" array" : "vocab\" object"));
    }
    for (const char* key :
         {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
      const json& value = json_member(model, key);
      if (!value.is_null() && value != "" && value != 0.0 && value != false) {
        fail(fmt::format("model.{} {} is not supported beside a ByteLevel step.", key,
                         value.dump()));
      }
    }
    model_.ignore_merges = json_member(model, "ignore_merges") == true;
    unknown_ = json_member(model, "unk_token");
  }

  void read_normalizer() {
    for (const json& step : steps_of(json_member(text_.rest, "normalizer"), "normalizers")) {
      if (json_member(step, "type") != "NFC") {
        fail(fmt::format("normalizer {} is not supported beside a ByteLevel step; known: NFC.",
                         json_member(step, "type").dump()));
      }
      model_.nfc = true;
    }
  }

  void read_pre_tokenizer() {
    for (const json& step : steps_of(json_member(text_.rest, "pre_tokenizer"), "pretokenizers")) {
      const json& type = json_member(step, "type");
      if (type == "Split") {
        model_.patterns.push_back(split_pattern(step));
      } else if (type == "Digits") {
        model_.patterns.emplace_back(json_member(step, "individual_digits") == true ? R"(\p{N})"
                                                                                    : R"(\p{N}+)");
      } else if (type == "ByteLevel") {
        if (json_member(step, "add_prefix_space") == true) {
          fail("pre_tokenizer: ByteLevel with add_prefix_space is not supported.");
        }
        if (json_member(step, "use_regex") != false) {
          model_.patterns.emplace_back(kGpt2Pattern);
        }
      } else {
        fail(
            fmt::format("pre_tokenizer {} is not supported; known: Sequence, Split, Digits, "
                        "ByteLevel.",
                        type.dump()));
      }
    }
  }

  std::string split_pattern(const json& step) const {
    const json& regex = json_member(json_member(step, "pattern"), "Regex");
    if (!regex.is_string() || json_member(step, "behavior") != "Isolated" ||
        json_member(step, "invert") == true) {
      fail(
          "pre_tokenizer: Split is supported with a \"Regex\", the behaviour \"Isolated\", and "
          "not inverted.");
    }
    return regex.get<std::string>();
  }

  void read_vocabulary() {
    for (const auto& [text, id] : text_.vocab) {
      pieces_.add_new(text, id, PieceType::kNormal);
    }
  }

  void read_added_tokens() {
    const json& added = json_member(text_.rest, "added_tokens");
    if (!added.is_null() && !added.is_array()) {
      fail("added_tokens is not an array.");
    }
    for (size_t i = 0; i < added.size(); ++i) {
      const json& content = json_member(added[i], "content");
      const json& id = json_member(added[i], "id");
      if (!content.is_string() || !id.is_number_unsigned()) {
        fail(fmt::format("added_tokens[{}] has no \"content\" string or no \"id\" number.", i));
      }
      for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
        if (added_token_flag(added[i], flag, i, where_)) {
          fail(fmt::format("added_tokens[{}] ({}): {} is not supported.", i, content.dump(), flag));
        }
      }
      add_token(i, content.get<std::string>(), id.get<uint64_t>(),
                added_token_flag(added[i], "normalized", i, where_),
                added_token_flag(added[i], "special", i, where_));
    }
  }

  void add_token(size_t i, const std::string& text, uint64_t id, bool normalized, bool special) {
    const auto bytes = from_byte_symbols(text);
    if (special && bytes && bytes->size() == 1 && pieces_.find(text)) {
      fail(
          fmt::format("added_tokens[{}] (\"{}\"): a special token that is also the symbol of a "
                      "byte is not supported.",
                      i, text));
    }
    pieces_.add(text, id, special ? PieceType::kControl : PieceType::kUserDefined);
    if (!special) {
      model_.added.push_back({.text = normalized && model_.nfc ? composed(text) : text,
                              .id = static_cast<Token>(id),
                              .normalized = normalized});
    }
  }

  void check_ids() {
    pieces_.check_gaps();
    if (unknown_.is_string()) {
      model_.unknown = pieces_.id_of(unknown_.get<std::string>(), "model.unk_token");
    }
  }

  void read_merges() {
    model_.merges.reserve(text_.merges.size());
    for (size_t i = 0; i < text_.merges.size(); ++i) {
      const auto& [left, right] = text_.merges[i];
      model_.merges.push_back({.left = pieces_.id_of(left, i),
                               .right = pieces_.id_of(right, i),
                               .result = pieces_.id_of(left + right, i)});
    }
  }

  /// Added tokens that BPE makes too, of bytes, stand for those bytes.
  void keep_bytes() {
    std::set<Token> made;
    for (const BpeMerge& merge : model_.merges) {
      made.insert(merge.result);
    }
    for (const AddedToken& token : model_.added) {
      SentencePiece& piece = model_.pieces[static_cast<size_t>(token.id)];
      const auto bytes = from_byte_symbols(piece.text);
      if (bytes && (bytes->size() == 1 || made.contains(token.id))) {
        piece.type = PieceType::kNormal;
      }
    }
  }

  /// Refuses two tokens that are looked for by the same text: the library has its own order.
  void check_added() const {
    std::map<std::pair<std::string, bool>, Token> known;
    for (const AddedToken& token : model_.added) {
      const auto [other, is_new] = known.insert({{token.text, token.normalized}, token.id});
      if (!is_new && other->second != token.id) {
        fail(fmt::format(
            "the added tokens {} and {} are both \"{}\" once they are normalised, which "
            "is not supported.",
            other->second, token.id, token.text));
      }
    }
  }

  /// A TemplateProcessing that begins with a special token puts <bos> there.
  void read_post_processor() {
    for (const json& step : steps_of(json_member(text_.rest, "post_processor"), "processors")) {
      if (!step.is_object()) {
        fail(fmt::format("post_processor has a step that is no object: {}.", step.dump()));
      }
      const json& single = json_member(step, "single");
      if (json_member(step, "type") == "TemplateProcessing" && single.is_array() &&
          !single.empty() &&
          json_member(json_member(single[0], "SpecialToken"), "id").is_string()) {
        model_.bos = pieces_.id_of(
            json_member(json_member(single[0], "SpecialToken"), "id").get<std::string>(),
            "post_processor");
        model_.adds_bos = true;
      }
    }
  }

  void read_config(const TokenizerConfig& config) {
    const auto token = [&](const char* key) -> std::optional<Token> {
      const auto piece = config.pieces.find(key);
      return piece == config.pieces.end() ? std::nullopt : pieces_.find(piece->second);
    };
    model_.bos = model_.bos ? model_.bos : token("bos_token");
    model_.eos = token("eos_token");
    model_.chat_template = config.chat_template;
    model_.chat_template_file = config.chat_template_file;
  }

  const TokenizerJsonText& text_;
  const std::string& where_;
  json unknown_;
  PieceTable pieces_;
  ByteLevelModel model_;
};

}  // namespace

bool is_byte_level(const TokenizerJsonText& text) {
  for (const json& step : steps_of(json_member(text.rest, "pre_tokenizer"), "pretokenizers")) {
    if (json_member(step, "type") == "ByteLevel") {
      return true;
    }
  }
  return false;
}

ByteLevelModel parse_byte_level_json(const TokenizerJsonText& text, const TokenizerConfig& config,
                                     const std::string& where) {
  return ByteLevelReader(text, where).read(config);
}

}  // namespace specdec
