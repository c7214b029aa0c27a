#include "grammar/tags/plain_string_automaton.h"

#include <optional>
#include <string>
#include <utility>

#include "grammar/tags/json_spelling.h"

namespace specdec {
namespace {

/// An automaton of plain strings, whose states are those of the JSON automaton between the quotes.
class PlainStringAutomaton final : public Automaton {
 public:
  explicit PlainStringAutomaton(std::unique_ptr<Automaton> strings)
      : strings_(std::move(strings)) {}

  StateId start() override { return strings_->next(strings_->start(), '"'); }
  StateId next(StateId state, uint8_t byte) override { return walk(state, spelling_[byte]); }
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
    const std::string plain = plain_beginning(strings_->completion(state).value_or(""));
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
  JsonSpelling spelling_ = json_spelling();
};

}  // namespace

std::unique_ptr<Automaton> make_plain_string_automaton(std::unique_ptr<Automaton> strings) {
  return std::make_unique<PlainStringAutomaton>(std::move(strings));
}

}  // namespace specdec
