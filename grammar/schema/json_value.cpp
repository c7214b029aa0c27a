#include "grammar/schema/json_value.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_set>

#include "core/ascii.h"
#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/regex/code_points.h"

namespace specdec {
namespace {

constexpr int kMaxTextDepth = 1'000;

class Reader {
 public:
  Reader(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  JsonValue document() {
    if (!is_utf8(text_)) {
      throw GrammarError(fmt::format("{}: the text is not UTF-8", where_));
    }
    skip_space();
    JsonValue result = value(0);
    skip_space();
    if (at_ != text_.size()) {
      fail("there is text after the document");
    }
    return result;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t start = before.rfind('\n');
    const size_t column = start == std::string_view::npos ? at_ + 1 : at_ - start;
    throw GrammarError(fmt::format("{}:{}:{}: {}", where_, line, column, what));
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (peek() != c || at_ == text_.size()) {
      return false;
    }
    ++at_;
    return true;
  }

  void skip_space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string::npos) {
      ++at_;
    }
  }

  JsonValue value(int depth) {
    if (depth > kMaxTextDepth) {
      fail(fmt::format("the text nests deeper than {}", kMaxTextDepth));
    }
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return {JsonValue::Type::kString, string(), {}, {}};
      case 't':
        return word("true", JsonValue::Type::kTrue);
      case 'f':
        return word("false", JsonValue::Type::kFalse);
      case 'n':
        return word("null", JsonValue::Type::kNull);
      default:
        return number();
    }
  }

  JsonValue word(std::string_view name, JsonValue::Type type) {
    if (text_.substr(at_, name.size()) != name) {
      fail("this is no JSON value");
    }
    at_ += name.size();
    return {type, {}, {}, {}};
  }

  bool digits() {
    const size_t from = at_;
    while (is_digit(peek())) {
      ++at_;
    }
    return at_ > from;
  }

  JsonValue number() {
    const size_t from = at_;
    take('-');
    const bool whole = take('0') || digits();
    if (!whole || (take('.') && !digits())) {
      fail(at_ == from ? "this is no JSON value" : "this number is not finished");
    }
    if (take('e') || take('E')) {
      if (!take('+')) {
        take('-');
      }
      if (!digits()) {
        fail("this number's exponent has no digits");
      }
    }
    return {JsonValue::Type::kNumber, std::string(text_.substr(from, at_ - from)), {}, {}};
  }

  uint32_t hex4() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      const bool decimal = is_digit(c);
      const char lower = static_cast<char>(c | 0x20);
      if (!decimal && !(lower >= 'a' && lower <= 'f')) {
        fail("\\u needs four hexadecimal digits");
      }
      code = code * 16 + static_cast<uint32_t>(decimal ? c - '0' : lower - 'a' + 10);
      ++at_;
    }
    return code;
  }

  uint32_t unicode_escape() {
    const uint32_t high = hex4();
    if (high < 0xD800 || high > 0xDFFF) {
      return high;
    }
    if (high > 0xDBFF || !take('\\') || !take('u')) {
      fail("half a surrogate pair is no character");
    }
    const uint32_t low = hex4();
    if (low < 0xDC00 || low > 0xDFFF) {
      fail("half a surrogate pair is no character");
    }
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  void escape(std::string& out) {
    static constexpr std::string_view kLetters = "\"\\/bfnrt";
    static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (take('u')) {
      const char32_t point = unicode_escape();
      out += to_utf8({&point, 1});
      return;
    }
    const size_t which = at_ < text_.size() ? kLetters.find(peek()) : std::string::npos;
    if (which == std::string::npos) {
      fail("this escape does not exist in JSON");
    }
    out += kMeanings[which];
    ++at_;
  }

  std::string string() {
    ++at_;
    std::string out;
    while (!take('"')) {
      if (at_ == text_.size() || static_cast<unsigned char>(peek()) < 0x20) {
        fail("this string is not closed, or holds a control character that must be escaped");
      }
      if (take('\\')) {
        escape(out);
      } else {
        out += text_[at_++];
      }
    }
    return out;
  }

  void fail_at_end(std::string_view within) {
    if (at_ == text_.size()) {
      fail(fmt::format("the text ends within {}", within));
    }
  }

  JsonValue array(int depth) {
    JsonValue result{JsonValue::Type::kArray, {}, {}, {}};
    ++at_;
    skip_space();
    if (take(']')) {
      return result;
    }
    do {
      skip_space();
      fail_at_end("an array");
      result.items.push_back(value(depth + 1));
      skip_space();
      fail_at_end("an array");
    } while (take(','));
    if (!take(']')) {
      fail("',' or ']' is missing here");
    }
    return result;
  }

  JsonValue object(int depth) {
    JsonValue result{JsonValue::Type::kObject, {}, {}, {}};
    std::unordered_set<std::string> seen;
    ++at_;
    skip_space();
    if (take('}')) {
      return result;
    }
    do {
      skip_space();
      fail_at_end("an object");
      if (peek() != '"') {
        fail("a member's name must be a string");
      }
      std::string name = string();
      if (!seen.insert(name).second) {
        fail(fmt::format("the member '{}' stands here twice", name));
      }
      skip_space();
      fail_at_end("an object");
      if (!take(':')) {
        fail("':' is missing here");
      }
      skip_space();
      fail_at_end("an object");
      result.members.push_back({std::move(name), value(depth + 1)});
      skip_space();
      fail_at_end("an object");
    } while (take(','));
    if (!take('}')) {
      fail("',' or '}' is missing here");
    }
    return result;
  }

  std::string_view text_;
  std::string_view where_;
  size_t at_ = 0;
};

void write(const JsonValue& value, std::string& out) {
  switch (value.type) {
    case JsonValue::Type::kNull:
      out += "null";
      return;
    case JsonValue::Type::kFalse:
      out += "false";
      return;
    case JsonValue::Type::kTrue:
      out += "true";
      return;
    case JsonValue::Type::kNumber:
      out += value.text;
      return;
    case JsonValue::Type::kString:
      out += to_json_string(value.text);
      return;
    case JsonValue::Type::kArray:
      out += '[';
      for (const JsonValue& item : value.items) {
        out += &item == &value.items.front() ? "" : ",";
        write(item, out);
      }
      out += ']';
      return;
    case JsonValue::Type::kObject:
      out += '{';
      for (const JsonMember& member : value.members) {
        out += &member == &value.members.front() ? "" : ",";
        out += to_json_string(member.name);
        out += ':';
        write(member.value, out);
      }
      out += '}';
      return;
  }
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const JsonMember& member) { return member.name == name; });
  return found == members.end() ? nullptr : &found->value;
}

JsonValue parse_json(std::string_view text, std::string_view where) {
  return Reader(text, where).document();
}

std::string to_json_string(std::string_view utf8) {
  static constexpr std::string_view kMeanings = "\"\\\b\f\n\r\t";
  static constexpr std::string_view kLetters = "\"\\bfnrt";
  std::string out = "\"";
  for (const char c : utf8) {
    const size_t which = kMeanings.find(c);
    if (which != std::string_view::npos) {
      out += '\\';
      out += kLetters[which];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string to_json(const JsonValue& value) {
  std::string out;
  write(value, out);
  return out;
}

}  // namespace specdec
