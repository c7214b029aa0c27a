#include "core/formats/tokenizer_json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/formats/tokenizer_json_sax.h"

namespace specdec {
namespace {

using nlohmann::json;

constexpr const char* kWanted = "Only tokenizers of Gemma's kind are supported.";

// Not "<s>", Llama's <bos>: Gemma has it as a piece of text, the HTML tag.
constexpr std::array<std::string_view, 3> kControl = {"<pad>", "<eos>", "<bos>"};

bool is_control(std::string_view text) {
  return std::find(kControl.begin(), kControl.end(), text) != kControl.end();
}

// Builds the model from the parts of the file, with what is wrong named by its place in it.
class TokenizerJsonReader {
 public:
  TokenizerJsonReader(TokenizerJsonText text, const std::string& where)
      : text_(std::move(text)), where_(where) {}

  BpeModel read() {
    if (!text_.rest.is_object()) {
      fail(fmt::format("it is a JSON {}, not an object.", text_.rest.type_name()));
    }
    check_model();
    check_normalizer(member(text_.rest, "normalizer"));
    check_pre_tokenizer(member(text_.rest, "pre_tokenizer"));
    read_vocabulary();
    read_added_tokens();
    check_ids();
    read_merges();
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw WeightsError(fmt::format("{}: {}", where_, what));
  }

  // null when there is no such member.
  static const json& member(const json& object, const char* key) {
    static const json none;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() ? none : *found;
  }

  static std::string text_of(const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  }

  void check_model() {
    const json& model = member(text_.rest, "model");
    if (!model.is_object()) {
      fail("it has no \"model\" object.");
    }
    const json& type = member(model, "type");
    if (!type.is_null() && type != "BPE") {
      fail(fmt::format("model.type {} is not supported; known: BPE. {}", type.dump(), kWanted));
    }
    if (!text_.has_vocab || !text_.has_merges) {
      fail(fmt::format("it has no \"model.{}\".",
                       text_.has_vocab ? "merges\" array" : "vocab\" object"));
    }
    if (member(model, "byte_fallback") != true) {
      fail(fmt::format("model.byte_fallback is not true. {}", kWanted));
    }
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const json& value = member(model, key);
      if (!value.is_null() && value != "" && value != 0.0) {
        fail(fmt::format("model.{} {} is not supported. {}", key, value.dump(), kWanted));
      }
    }
    if (member(model, "ignore_merges") == true) {
      fail(fmt::format("model.ignore_merges is not supported. {}", kWanted));
    }
    const json& unknown = member(model, "unk_token");
    if (!unknown.is_string()) {
      fail("it has no \"model.unk_token\" string.");
    }
    unknown_ = unknown.get<std::string>();
  }

  void check_normalizer(const json& normalizer) const {
    const json expected = {
        {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}};
    const bool sequence = member(normalizer, "type") == "Sequence";
    if (normalizer != expected &&
        !(sequence && member(normalizer, "normalizers") == json::array({expected}))) {
      fail(fmt::format("normalizer {} is not supported; known: Replace \" \" by \"▁\". {}",
                       text_of(member(normalizer, "type")), kWanted));
    }
  }

  // Gemma's file splits at spaces, of which the normaliser leaves none.
  void check_pre_tokenizer(const json& pre_tokenizer) const {
    const bool splits_spaces = member(pre_tokenizer, "type") == "Split" &&
                               member(pre_tokenizer, "pattern") == json{{"String", " "}} &&
                               member(pre_tokenizer, "invert") != true;
    if (!pre_tokenizer.is_null() && !splits_spaces) {
      fail(fmt::format("pre_tokenizer {} is not supported; known: null, Split at \" \". {}",
                       text_of(member(pre_tokenizer, "type")), kWanted));
    }
  }

  // Ids may come in any order, so pieces are placed as they come and gaps looked for at the end.
  void add_piece(const std::string& text, uint64_t id, PieceType type) {
    auto& pieces = model_.vocabulary.pieces;
    const size_t most = text_.vocab.size() + member(text_.rest, "added_tokens").size();
    if (text.empty() || id >= most) {
      fail(
          fmt::format("piece \"{}\" with id {}: pieces are not empty, and ids run from 0 without "
                      "gaps.",
                      text, id));
    }
    const auto [known, is_new] = ids_.emplace(text, static_cast<Token>(id));
    if (!is_new && known->second != static_cast<Token>(id)) {
      fail(fmt::format("piece \"{}\" has two ids, {} and {}.", text, known->second, id));
    }
    if (id >= pieces.size()) {
      pieces.resize(id + 1);
    }
    if (is_new && !pieces[id].text.empty()) {
      fail(fmt::format("id {} has two pieces, \"{}\" and \"{}\".", id, pieces[id].text, text));
    }
    pieces[id] = {.text = text, .score = 0.0F, .type = type};
  }

  void read_vocabulary() {
    ids_.reserve(text_.vocab.size());
    for (const auto& [text, id] : text_.vocab) {
      if (ids_.count(text) != 0) {
        fail(fmt::format("model.vocab: the piece \"{}\" stands twice.", text));
      }
      const bool byte = byte_piece_value(text).has_value();
      bytes_ += byte ? 1 : 0;
      const PieceType plain = byte ? PieceType::kByte : PieceType::kNormal;
      add_piece(text, id, text == unknown_ ? PieceType::kUnknown : plain);
    }
    if (bytes_ != 256 || ids_.count(unknown_) == 0) {
      fail(fmt::format(
          "model.vocab has {} of the 256 byte pieces and {}the unknown piece \"{}\". {}", bytes_,
          ids_.count(unknown_) == 0 ? "not " : "", unknown_, kWanted));
    }
  }

  void read_added_tokens() {
    const json& added = member(text_.rest, "added_tokens");
    if (!added.is_null() && !added.is_array()) {
      fail("added_tokens is not an array.");
    }
    for (size_t i = 0; i < added.size(); ++i) {
      const json& token = added[i];
      const json& content = member(token, "content");
      const json& id = member(token, "id");
      if (!content.is_string() || !id.is_number_unsigned()) {
        fail(fmt::format("added_tokens[{}] has no \"content\" string or no \"id\" number.", i));
      }
      for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
        if (member(token, flag) == true) {
          fail(fmt::format("added_tokens[{}] ({}): {} is not supported. {}", i, content.dump(),
                           flag, kWanted));
        }
      }
      add_token(content.get<std::string>(), id.get<uint64_t>(),
                member(token, "normalized") == true);
    }
  }

  void add_token(const std::string& text, uint64_t id, bool normalized) {
    if (text == unknown_) {
      add_piece(text, id, PieceType::kUnknown);
    } else if (is_control(text)) {
      add_piece(text, id, PieceType::kControl);
    } else if (!byte_piece_value(text)) {
      add_piece(text, id, PieceType::kUserDefined);
      model_.added.push_back({.text = normalized ? replace_all(text, " ", kSpaceMark) : text,
                              .id = static_cast<Token>(id),
                              .normalized = normalized});
    }
  }

  void check_ids() {
    const auto& pieces = model_.vocabulary.pieces;
    for (size_t id = 0; id < pieces.size(); ++id) {
      if (pieces[id].text.empty()) {
        fail(fmt::format("no piece has the id {}, but there are higher ones.", id));
      }
    }
    model_.vocabulary.unk = ids_.at(unknown_);
    model_.vocabulary.bos = find("<bos>");
    model_.vocabulary.eos = find("<eos>");
    model_.vocabulary.pad = find("<pad>");
  }

  std::optional<Token> find(const char* text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  Token id_of(const std::string& text, size_t merge) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) {
      fail(
          fmt::format("model.merges: merge {} needs the piece \"{}\", which model.vocab does not "
                      "have.",
                      merge, text));
    }
    return found->second;
  }

  void read_merges() {
    model_.merges.reserve(text_.merges.size());
    for (size_t i = 0; i < text_.merges.size(); ++i) {
      const auto& [left, right] = text_.merges[i];
      model_.merges.push_back(
          {.left = id_of(left, i), .right = id_of(right, i), .result = id_of(left + right, i)});
    }
  }

  TokenizerJsonText text_;
  const std::string& where_;
  std::string unknown_;
  size_t bytes_ = 0;
  std::unordered_map<std::string, Token> ids_;
  BpeModel model_;
};

}  // namespace

BpeModel parse_tokenizer_json(TokenizerJsonText text, const std::string& where) {
  return TokenizerJsonReader(std::move(text), where).read();
}

}  // namespace specdec
