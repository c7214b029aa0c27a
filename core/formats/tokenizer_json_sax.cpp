#include "core/formats/tokenizer_json_sax.h"

#include <fmt/format.h>

#include "core/error.h"
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

}  // namespace

TokenizerJsonText split_tokenizer_json(std::string_view text, const std::string& where) {
  TokenizerJsonEvents events(text, where);
  json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

}  // namespace specdec
