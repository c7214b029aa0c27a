#include "grammar/tags/plain_string_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "grammar/json/json_string_decoder.h"
#include "grammar/regex/code_points.h"

namespace specdec {
namespace {

/// How many there are at the beginning: they finish the character in whose middle it stands.
size_t continuation_bytes(std::string_view text) {
  const auto last = std::ranges::find_if_not(
      text, [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; });
  return last - text.begin();
}

/// An automaton of plain strings, whose states are those of the JSON automaton between the quotes.
class PlainStringAutomaton final : public Automaton {
 public:
  explicit PlainStringAutomaton(std::unique_ptr<Automaton> strings) : strings_(std::move(strings)) {
    for (uint32_t byte = 0; byte < written_.size(); ++byte) {
      written_[byte] = std::string(1, static_cast<char>(byte));
    }
    for (uint32_t control = 0; control < 0x20; ++control) {
      written_[control] = fmt::format("\\u{:04x}", control);
    }
    written_['\n'] = "\\n";
    written_['\t'] = "\\t";
    written_['\r'] = "\\r";
    written_['\b'] = "\\b";
    written_['\f'] = "\\f";
    written_['"'] = "\\\"";
    written_['\\'] = "\\\\";
  }

  StateId start() override { return strings_->next(strings_->start(), '"'); }
  StateId next(StateId state, uint8_t byte) override { return walk(state, written_[byte]); }
  bool is_complete(StateId state) override {
    return state != kDead && strings_->next(state, '"') != kDead;
  }
  std::string explain(StateId state) override { return strings_->explain(state); }
  void begin_call() override { strings_->begin_call(); }
  double used() const override { return strings_->used(); }

  std::optional<std::string> completion(StateId state) override {
    if (is_complete(state)) {
      return "";
    }
    const std::string way = strings_->completion(state).value_or("");
    if (const size_t rest = continuation_bytes(way); rest > 0) {
      return way.substr(0, rest);
    }
    JsonStringDecoder decoder;
    std::string plain;
    for (const char byte : way) {
      std::optional<char32_t> point;
      if ((byte == '"' && decoder.idle()) ||
          !decoder.take(static_cast<uint8_t>(byte), Escapes(), point)) {
        break;
      }
      plain += point ? to_utf8(std::u32string_view(&*point, 1)) : "";
    }
    const bool works = !plain.empty() && walk_plain(state, plain) != kDead;
    return works ? std::optional(plain) : std::nullopt;
  }

 private:
  StateId walk(StateId state, const std::string& bytes) {
    for (size_t i = 0; i < bytes.size() && state != kDead; ++i) {
      state = strings_->next(state, static_cast<uint8_t>(bytes[i]));
    }
    return state;
  }
  StateId walk_plain(StateId state, const std::string& bytes) {
    for (size_t i = 0; i < bytes.size() && state != kDead; ++i) {
      state = next(state, static_cast<uint8_t>(bytes[i]));
    }
    return state;
  }

  std::unique_ptr<Automaton> strings_;
  std::array<std::string, 256> written_;
};

}  // namespace

std::unique_ptr<Automaton> make_plain_string_automaton(std::unique_ptr<Automaton> strings) {
  return std::make_unique<PlainStringAutomaton>(std::move(strings));
}

}  // namespace specdec
