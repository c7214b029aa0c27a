#include "core/formats/tokenizer_json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/formats/piece_table.h"
#include "core/formats/tokenizer_json_sax.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kWanted = "Only tokenizers of Gemma's and Llama 2's kind are supported.";

// Builds the model from the parts of the file, with what is wrong named by its place in it.
class TokenizerJsonReader {
 public:
  TokenizerJsonReader(TokenizerJsonText text, const std::string& where)
      : text_(std::move(text)),
        where_(where),
        pieces_(text_.vocab.size() + json_member(text_.rest, "added_tokens").size(), where) {}

  BpeModel read(const TokenizerConfig& config) {
    if (!text_.rest.is_object()) {
      fail(fmt::format("it is a JSON {}, not an object.", text_.rest.type_name()));
    }
    check_model();
    model_.vocabulary.prefix_space = read_prefix_space();
    read_vocabulary();
    read_added_tokens();
    check_ids();
    read_merges();
    model_.vocabulary.adds_bos = template_adds_bos().value_or(config.adds_bos.value_or(false));
    model_.vocabulary.pieces = pieces_.take();
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw WeightsError(fmt::format("{}: {}", where_, what));
  }

  static std::string text_of(const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  }

  void check_model() {
    const json& model = json_member(text_.rest, "model");
    if (!model.is_object()) {
      fail("it has no \"model\" object.");
    }
    const json& type = json_member(model, "type");
    if (!type.is_null() && type != "BPE") {
      fail(fmt::format("model.type {} is not supported; known: BPE. {}", type.dump(), kWanted));
    }
    if (!text_.has_vocab || !text_.has_merges) {
      fail(fmt::format("it has no \"model.{}.",
                       text_.has_vocab ? "merges\" array" : "vocab\" object"));
    }
    if (json_member(model, "byte_fallback") != true) {
      fail(fmt::format("model.byte_fallback is not true. {}", kWanted));
    }
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const json& value = json_member(model, key);
      if (!value.is_null() && value != "" && value != 0.0) {
        fail(fmt::format("model.{} {} is not supported. {}", key, value.dump(), kWanted));
      }
    }
    if (json_member(model, "ignore_merges") == true) {
      fail(fmt::format("model.ignore_merges is not supported. {}", kWanted));
    }
    const json& unknown = json_member(model, "unk_token");
    if (!unknown.is_string()) {
      fail("it has no \"model.unk_token\" string.");
    }
    unknown_ = unknown.get<std::string>();
  }

  // Spaces become "▁" and are put before texts either by the normalizer (Gemma, Llama 2) or, where
  // that is null, by the pre_tokenizer Metaspace (Llama 2's and Mistral's newer files).
  PrefixSpace read_prefix_space() const {
    const json& normalizer = json_member(text_.rest, "normalizer");
    const json& pre_tokenizer = json_member(text_.rest, "pre_tokenizer");
    if (normalizer.is_null() && json_member(pre_tokenizer, "type") == "Metaspace") {
      return metaspace_prefix(pre_tokenizer);
    }
    check_pre_tokenizer(pre_tokenizer);
    return normalizer_prefix(normalizer);
  }

  PrefixSpace normalizer_prefix(const json& normalizer) const {
    const json replace = {
        {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}};
    const json prepend = {{"type", "Prepend"}, {"prepend", kSpaceMark}};
    const bool sequence = json_member(normalizer, "type") == "Sequence";
    const json steps =
        sequence ? json_member(normalizer, "normalizers") : json::array({normalizer});
    if (steps == json::array({replace})) {
      return PrefixSpace::kNone;
    }
    if (steps == json::array({prepend, replace})) {
      return PrefixSpace::kAlways;
    }
    fail(
        fmt::format("normalizer {} is not supported; known: Replace \" \" by \"▁\", also after "
                    "Prepend \"▁\", and null before the pre_tokenizer Metaspace. {}",
                    text_of(json_member(normalizer, "type")), kWanted));
  }

  PrefixSpace metaspace_prefix(const json& metaspace) const {
    const json& replacement = json_member(metaspace, "replacement");
    if (replacement != kSpaceMark || json_member(metaspace, "split") != false) {
      fail(
          fmt::format("pre_tokenizer Metaspace with replacement {} and split {} is not supported; "
                      "known: \"▁\" and false. {}",
                      replacement.dump(), json_member(metaspace, "split").dump(), kWanted));
    }
    const json& scheme = json_member(metaspace, "prepend_scheme");
    if (scheme == "never") {
      return PrefixSpace::kNone;
    }
    if (scheme == "first") {
      return PrefixSpace::kFirstUnlessSpace;
    }
    if (scheme == "always") {
      return PrefixSpace::kUnlessSpace;
    }
    fail(
        fmt::format("pre_tokenizer.prepend_scheme {} is not supported; known: \"always\", "
                    "\"first\", \"never\".",
                    scheme.dump()));
  }

  // Gemma's file splits at spaces, of which the normalizer leaves none.
  void check_pre_tokenizer(const json& pre_tokenizer) const {
    const bool splits_spaces = json_member(pre_tokenizer, "type") == "Split" &&
                               json_member(pre_tokenizer, "pattern") == json{{"String", " "}} &&
                               json_member(pre_tokenizer, "invert") != true;
    if (!pre_tokenizer.is_null() && !splits_spaces) {
      fail(
          fmt::format("pre_tokenizer {} is not supported; known: null, Split at \" \", and "
                      "Metaspace where the normalizer is null. {}",
                      text_of(json_member(pre_tokenizer, "type")), kWanted));
    }
  }

  void read_vocabulary() {
    for (const auto& [text, id] : text_.vocab) {
      const bool byte = byte_piece_value(text).has_value();
      bytes_ += byte ? 1 : 0;
      const PieceType plain = byte ? PieceType::kByte : PieceType::kNormal;
      pieces_.add_new(text, id, text == unknown_ ? PieceType::kUnknown : plain);
    }
    if (bytes_ != 256 || !pieces_.find(unknown_)) {
      fail(fmt::format(
          "model.vocab has {} of the 256 byte pieces and {}the unknown piece \"{}\". {}", bytes_,
          pieces_.find(unknown_) ? "" : "not ", unknown_, kWanted));
    }
  }

  void read_added_tokens() {
    const json& added = json_member(text_.rest, "added_tokens");
    if (!added.is_null() && !added.is_array()) {
      fail("added_tokens is not an array.");
    }
    is_gemma_ =
        pieces_.find("<bos>") || std::any_of(added.begin(), added.end(), [](const json& token) {
          return json_member(token, "content") == "<bos>";
        });
    for (size_t i = 0; i < added.size(); ++i) {
      const json& token = added[i];
      const json& content = json_member(token, "content");
      const json& id = json_member(token, "id");
      if (!content.is_string() || !id.is_number_unsigned()) {
        fail(fmt::format("added_tokens[{}] has no \"content\" string or no \"id\" number.", i));
      }
      for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
        if (added_token_flag(token, flag, i, where_)) {
          fail(fmt::format("added_tokens[{}] ({}): {} is not supported. {}", i, content.dump(),
                           flag, kWanted));
        }
      }
      add_token(content.get<std::string>(), id.get<uint64_t>(),
                added_token_flag(token, "normalized", i, where_),
                added_token_flag(token, "special", i, where_));
    }
  }

  // Gemma marks pieces of its chat format as special too, which its tokenizer.model knows as text.
  bool is_control(const std::string& text, bool special) const {
    return is_gemma_ ? text == "<bos>" || text == "<eos>" || text == "<pad>" : special;
  }

  /// An added token that is looked for in the normalised text is normalised as a text is.
  std::string normalized_token(const std::string& text) const {
    const std::string marked = replace_all(text, " ", kSpaceMark);
    if (json_member(text_.rest, "normalizer").is_null() &&
        marked.find(kSpaceMark) != std::string::npos) {
      fail(
          fmt::format("the added token \"{}\" is \"normalized\" and has spaces, which is not "
                      "supported before the pre_tokenizer Metaspace.",
                      text));
    }
    const bool prefix = model_.vocabulary.prefix_space == PrefixSpace::kAlways;
    return (prefix ? std::string(kSpaceMark) : "") + marked;
  }

  void add_token(const std::string& text, uint64_t id, bool normalized, bool special) {
    if (text == unknown_) {
      pieces_.add(text, id, PieceType::kUnknown);
    } else if (is_control(text, special)) {
      pieces_.add(text, id, PieceType::kControl);
      if (normalized && model_.vocabulary.prefix_space == PrefixSpace::kAlways) {
        model_.behind_space.push_back(static_cast<Token>(id));
      }
    } else if (!byte_piece_value(text)) {
      pieces_.add(text, id, PieceType::kUserDefined);
      model_.added.push_back({.text = normalized ? normalized_token(text) : text,
                              .id = static_cast<Token>(id),
                              .normalized = normalized});
    }
  }

  void check_ids() {
    pieces_.check_gaps();
    model_.vocabulary.unk = *pieces_.find(unknown_);
    model_.vocabulary.bos = pieces_.find(is_gemma_ ? "<bos>" : "<s>");
    model_.vocabulary.eos = pieces_.find(is_gemma_ ? "<eos>" : "</s>");
    model_.vocabulary.pad = pieces_.find("<pad>");
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

  /// Whether a TemplateProcessing begins with a special token; nothing where there is none.
  std::optional<bool> template_adds_bos() const {
    const json& processor = json_member(text_.rest, "post_processor");
    if (!processor.is_null() && !processor.is_object()) {
      fail(fmt::format("post_processor must be an object or null, but is {}.", processor.dump()));
    }
    const json& steps = json_member(processor, "processors");
    for (const json& step : steps.is_array() ? steps : json::array({processor})) {
      if (json_member(step, "type") == "TemplateProcessing") {
        const json& single = json_member(step, "single");
        return single.is_array() && !single.empty() &&
               json_member(single[0], "SpecialToken").is_object();
      }
    }
    return std::nullopt;
  }

  TokenizerJsonText text_;
  const std::string& where_;
  std::string unknown_;
  size_t bytes_ = 0;
  bool is_gemma_ = false;  // else Llama 2's kind, whose <bos> is "<s>": Gemma's HTML tag
  PieceTable pieces_;
  BpeModel model_;
};

}  // namespace

BpeModel parse_tokenizer_json(TokenizerJsonText text, const std::string& where,
                              const TokenizerConfig& config) {
  return TokenizerJsonReader(std::move(text), where).read(config);
}

}  // namespace specdec
