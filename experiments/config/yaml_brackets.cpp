#include "experiments/config/yaml_brackets.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace specdec {
namespace {

class BracketScanner {
 public:
  explicit BracketScanner(std::string_view text) : text_(text) {}

  BracketMistake scan() {
    while (at_ < text_.size() && mistake_.message.empty()) {
      step();
    }
    if (mistake_.message.empty() && !open_.empty()) {
      const Bracket& last = open_.back();
      mistake_ = {last.line, fmt::format("this '{}' is never closed: '{}' is missing", last.kind,
                                         closing(last.kind))};
    }
    return mistake_;
  }

 private:
  struct Bracket {
    char kind;
    size_t line;
  };

  static char closing(char kind) { return kind == '{' ? '}' : ']'; }

  void step() {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
      begins_value_ = true;
      after_close_ = false;
      return;
    }
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
      begins_value_ = begins_value_ || ends_indicator_;
      ends_indicator_ = false;
      spaced_ = true;
      return;
    }
    if (c == '#' && (spaced_ || begins_value_)) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (begins_value_ && (c == '"' || c == '\'')) {
      skip_quoted(c);
      begins_value_ = false;
    } else if (begins_value_ && open_.empty() && (c == '|' || c == '>')) {
      skip_block();
    } else {
      read(c);
      ++at_;
    }
    spaced_ = false;
  }

  void read(char c) {
    const bool in_flow = !open_.empty();
    ends_indicator_ = c == ':' || (begins_value_ && (c == '-' || c == '?'));
    if ((c == '{' || c == '[') && (in_flow || begins_value_)) {
      open_.push_back({c, line_});
      begins_value_ = true;
    } else if ((c == '}' || c == ']') && (in_flow || after_close_)) {
      close(c);
    } else {
      begins_value_ = in_flow && (c == ',' || c == ':');
      after_close_ = false;
    }
  }

  void close(char c) {
    if (open_.empty()) {
      mistake_ = {line_, fmt::format("a '{}' too many: no bracket is open", c)};
      return;
    }
    const Bracket last = open_.back();
    if (closing(last.kind) != c) {
      mistake_ = {line_, fmt::format("'{}' where the '{}' of line {} is still open: '{}' is "
                                     "missing before it",
                                     c, last.kind, last.line, closing(last.kind))};
      return;
    }
    open_.pop_back();
    begins_value_ = false;
    after_close_ = open_.empty();
  }

  void skip_quoted(char quote) {
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      line_ += c == '\n' ? 1 : 0;
      if (quote == '"' && c == '\\') {
        ++at_;
      } else if (c == quote) {
        ++at_;
        return;
      }
    }
  }

  /// The lines after a '|' or '>' that are indented deeper than its own.
  void skip_block() {
    const size_t begin = at_ == 0 ? 0 : text_.rfind('\n', at_ - 1) + 1;
    const size_t own = indentation(begin);
    at_ = std::min(text_.find('\n', at_), text_.size());
    while (at_ < text_.size() && (is_blank(at_ + 1) || indentation(at_ + 1) > own)) {
      ++line_;
      at_ = std::min(text_.find('\n', at_ + 1), text_.size());
    }
  }
  size_t indentation(size_t begin) const {
    return std::min(text_.find_first_not_of(' ', begin), text_.size()) - begin;
  }
  bool is_blank(size_t begin) const {
    const size_t end = text_.find_first_not_of(" \t\r", begin);
    return begin < text_.size() && (end == std::string_view::npos || text_[end] == '\n');
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t line_ = 1;
  std::vector<Bracket> open_;
  bool begins_value_ = true;     ///< the next character begins a key or a value
  bool ends_indicator_ = false;  ///< a ':', '-' or '?' that a space makes an indicator
  bool spaced_ = false;          ///< the last character was white space
  bool after_close_ = false;     ///< a bracket has just closed the outermost flow value
  BracketMistake mistake_;
};

}  // namespace

BracketMistake find_bracket_mistake(std::string_view text) { return BracketScanner(text).scan(); }

}  // namespace specdec
