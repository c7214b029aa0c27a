#include "core/formats/tokenizer_json_sax.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/formats/json_keys.h"
#include "core/formats/strict_json.h"

namespace specdec {
namespace {

using nlohmann::json;

// Receives the parser's events: fills the two lists, and builds a tree of everything else. Method
// names are those that the JSON library calls.
class TokenizerJsonEvents {
 public:
  TokenizerJsonEvents(std::string_view text, const std::string& where)
      : text_(text), where_(where) {}

  TokenizerJsonText take() { return std::move(result_); }

  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(int64_t value) { return scalar(value); }
  bool number_float(double value, const std::string& /*text*/) { return scalar(value); }
  bool binary(json::binary_t& /*value*/) { return false; }  // not in JSON text

  bool number_unsigned(uint64_t value) {
    if (list_ != List::kVocab) {
      return scalar(value);
    }
    result_.vocab.emplace_back(std::move(key_), value);
    return true;
  }

  bool string(std::string& value) {
    if (list_ == List::kMerges) {
      add_legacy_merge(value);
    } else if (list_ == List::kMergePair) {
      pair_.push_back(std::move(value));
    } else {
      return scalar(std::move(value));
    }
    return true;
  }

  bool start_object(size_t /*size*/) {
    refuse_in_list();
    if (open_.size() == 2 && in_model_ && key_ == "vocab" && open_.back()->is_object()) {
      note_list(List::kVocab, result_.has_vocab);
      return true;
    }
    in_model_ = in_model_ || (open_.size() == 1 && key_ == "model");
    open(json::object());
    return true;
  }

  bool end_object() {
    if (list_ == List::kVocab) {
      list_ = List::kNone;
    } else {
      close();
    }
    return true;
  }

  bool start_array(size_t /*size*/) {
    if (list_ == List::kMerges) {
      list_ = List::kMergePair;
      pair_.clear();
      return true;
    }
    refuse_in_list();
    if (open_.size() == 2 && in_model_ && key_ == "merges" && open_.back()->is_object()) {
      note_list(List::kMerges, result_.has_merges);
      return true;
    }
    open(json::array());
    return true;
  }

  bool end_array() {
    if (list_ == List::kMergePair) {
      if (pair_.size() != 2) {
        fail(fmt::format("model.merges: merge {} has {} parts, not two.", result_.merges.size(),
                         pair_.size()));
      }
      result_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      list_ = List::kMerges;
    } else if (list_ == List::kMerges) {
      list_ = List::kNone;
    } else {
      close();
    }
    return true;
  }

  bool key(std::string& value) {
    if (list_ == List::kNone && open_.back()->contains(value)) {
      fail(fmt::format("the key \"{}\" stands twice in one object.", value));
    }
    key_ = std::move(value);
    return true;
  }

  template <class Exception>
  [[noreturn]] bool parse_error(size_t position, const std::string& /*token*/,
                                const Exception& error) {
    throw_json_error(text_, where_, position, error.what());
  }

 private:
  enum class List { kNone, kVocab, kMerges, kMergePair };

  [[noreturn]] void fail(const std::string& what) const {
    throw WeightsError(fmt::format("{}: {}", where_, what));
  }

  void refuse_in_list() const {
    if (list_ == List::kVocab) {
      fail(fmt::format("model.vocab: the id of \"{}\" is not a whole number.", key_));
    }
    if (list_ != List::kNone) {
      fail(
          fmt::format("model.merges: merge {} is neither \"left right\" nor [\"left\", \"right\"].",
                      result_.merges.size()));
    }
  }

  void note_list(List list, bool& seen) {
    if (std::exchange(seen, true)) {
      fail(fmt::format("the key \"{}\" stands twice in one object.", key_));
    }
    list_ = list;
  }

  void add_legacy_merge(const std::string& text) {
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      fail(fmt::format("model.merges: merge {} (\"{}\") is not two pieces with a space between.",
                       result_.merges.size(), text));
    }
    result_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }

  bool scalar(json value) {
    refuse_in_list();
    place(std::move(value));
    return true;
  }

  json* place(json value) {
    if (open_.empty()) {
      result_.rest = std::move(value);
      return &result_.rest;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    json& slot = (*open_.back())[key_];
    slot = std::move(value);
    return &slot;
  }

  void open(json container) {
    if (open_.size() >= kMaxJsonDepth) {
      fail(fmt::format("nested more than {} levels deep.", kMaxJsonDepth));
    }
    open_.push_back(place(std::move(container)));
  }

  void close() {
    open_.pop_back();
    if (open_.size() == 1) {
      in_model_ = false;
    }
  }

  std::string_view text_;
  const std::string& where_;
  TokenizerJsonText result_;
  std::vector<json*> open_;  // containers from the root to the innermost
  std::string key_;
  std::vector<std::string> pair_;
  List list_ = List::kNone;
  bool in_model_ = false;
};

/// Receives the parser's events up to the end of the added tokens, and notes their highest id.
class AddedTokenEvents {
 public:
  std::optional<uint64_t> last() const { return last_; }

  bool null() { return true; }
  bool boolean(bool /*value*/) { return true; }
  bool number_integer(int64_t /*value*/) { return true; }
  bool number_float(double /*value*/, const std::string& /*text*/) { return true; }
  bool binary(json::binary_t& /*value*/) { return false; }  // not in JSON text
  bool string(std::string& /*value*/) { return true; }
  bool start_object(size_t /*size*/) { return open(); }
  bool start_array(size_t /*size*/) { return open(); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool number_unsigned(uint64_t value) {
    if (in_added_ && depth_ == kTokenDepth && key_ == "id") {
      last_ = std::max(last_.value_or(0), value);
    }
    return true;
  }

  bool key(std::string& value) {
    in_added_ = depth_ == 1 ? value == "added_tokens" : in_added_;
    key_ = std::move(value);
    return true;
  }

  template <class Exception>
  bool parse_error(size_t /*position*/, const std::string& /*token*/, const Exception& /*error*/) {
    return false;
  }

 private:
  static constexpr int kTokenDepth = 3;  // the file, the list, the token

  bool open() {
    ++depth_;
    key_.clear();
    return true;
  }
  bool close() {
    --depth_;
    return !(in_added_ && depth_ == 1);
  }

  int depth_ = 0;
  bool in_added_ = false;
  std::string key_;
  std::optional<uint64_t> last_;
};

}  // namespace

TokenizerJsonText split_tokenizer_json(std::string_view text, const std::string& where) {
  TokenizerJsonEvents events(text, where);
  json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

std::optional<uint64_t> last_added_id(std::string_view text) {
  AddedTokenEvents events;
  json::sax_parse(text.begin(), text.end(), &events);
  return events.last();
}

bool token_flag(const nlohmann::json& token, const char* flag, const std::string& place) {
  const json& value = json_member(token, flag);
  if (!value.is_boolean() && !value.is_null()) {
    throw WeightsError(fmt::format("{}: \"{}\" must be true or false, but is {}.", place, flag,
                                   describe_json(value)));
  }
  return value == true;
}

bool added_token_flag(const nlohmann::json& token, const char* flag, size_t index,
                      const std::string& where) {
  const json& value = json_member(token, flag);
  return value.is_boolean()
             ? value.get<bool>()
             : token_flag(token, flag, fmt::format("{}: added_tokens[{}]", where, index));
}

}  // namespace specdec
