#include "grammar/tags/gemma_values_automaton.h"

#include <array>
#include <utility>
#include <vector>

#include "grammar/json/open_string.h"
#include "grammar/tables/sequence_table.h"
#include "grammar/tags/json_spelling.h"

namespace specdec {
namespace {

/// A state is one of the automaton of JSON texts, and what of the notation that does not tell.
class GemmaValuesAutomaton final : public Automaton, private StringStates {
 public:
  GemmaValuesAutomaton(std::unique_ptr<Automaton> values, std::optional<Token> quote)
      : values_(std::move(values)), quote_(quote) {
    states_.intern({});  // kDead
    stacks_.intern({});  // nothing is open
    start_ = intern({.json = values_->start()});
  }

  StateId start() override { return start_; }

  StateId next(StateId state, uint8_t byte) override {
    if (state == kDead) {
      return kDead;
    }
    const Place at = place(state);
    switch (at.mode) {
      case Mode::kPlain:
        return intern(after_plain(at, byte));
      case Mode::kNameStart:
        return intern(byte == '}' ? after_plain(at, byte) : after_name(with_quote(at), byte));
      case Mode::kName:
        return intern(after_name(at, byte));
      case Mode::kString:
        return intern(after_text(at, byte));
      case Mode::kQuote:
        return intern(after_quote(at, byte));
    }
    return kDead;
  }

  bool is_complete(StateId state) override {
    return state != kDead && place(state).mode == Mode::kPlain &&
           values_->is_complete(place(state).json);
  }

  std::string explain(StateId state) override {
    return values_->explain(state == kDead ? StateId{kDead} : json_state(place(state)));
  }
  void begin_call() override { values_->begin_call(); }
  StringStates* string_states() override { return this; }
  double used() const override { return values_->used(); }

  std::vector<Token> named_tokens() const override {
    return quote_ ? std::vector<Token>{*quote_} : std::vector<Token>();
  }
  std::vector<Token> tokens(StateId state) override {
    return quote_ && next_token(state, *quote_) != kDead ? std::vector<Token>{*quote_}
                                                         : std::vector<Token>();
  }
  StateId next_token(StateId state, Token token) override {
    if (state == kDead || token != quote_) {
      return kDead;
    }
    const Place at = place(state);
    const bool may_stand = at.mode == Mode::kPlain || at.mode == Mode::kString;
    return may_stand ? intern(quoted(at)) : StateId{kDead};
  }

  std::optional<std::string> completion(StateId state) override {
    const std::optional<std::string> way = way_out(state);
    return way && way->empty() && !is_complete(state) ? std::nullopt : way;
  }
  std::optional<Token> completion_token(StateId state) override {
    const std::optional<std::string> way =
        state == kDead || is_complete(state) ? std::nullopt : way_out(state);
    const bool begins_with_token = way && way->empty();
    return !begins_with_token || next_token(state, quote_.value_or(-1)) == kDead ? std::nullopt
                                                                                 : quote_;
  }

 private:
  bool describe(StateId /*state*/, OpenString& /*string*/) override { return false; }
  bool depends_on_string(StateId /*state*/) override { return false; }

  /// Within names and strings: JSON has the same bytes but for those that it escapes, and those
  /// that may end them here.
  bool find_alike(StateId state, AlikePlace& alike) override {
    if (state == kDead) {
      return false;
    }
    Place at = place(state);
    if (at.mode == Mode::kPlain || at.mode == Mode::kQuote || at.quoted > 0) {
      return false;
    }
    at.json = at.mode == Mode::kNameStart ? walk(at.json, "\"") : at.json;
    for (size_t byte = 0; byte < spelling_.size(); ++byte) {
      alike.apart[byte] = spelling_[byte].size() > 1;
    }
    alike.apart.set(at.mode == Mode::kNameStart ? '}' : '"');
    alike.apart.set(at.mode == Mode::kString ? '"' : ':');
    if (at.mode == Mode::kString && !quote_) {
      alike.apart.set('<');
    }
    alike.automaton = values_.get();
    alike.state = at.json;
    return at.json != kDead;
  }

  enum class Mode : uint32_t {
    kPlain,      ///< outside of names and strings
    kNameStart,  ///< a name comes, or the end of an object
    kName,
    kString,
    kQuote,  ///< within the text of a quote before a string
  };
  struct Place {
    StateId json = kDead;
    Mode mode = Mode::kPlain;
    uint32_t stack = 0;      ///< open objects and lists
    uint32_t quoted = 0;     ///< bytes of a quote that were read
    StateId before = kDead;  ///< kString: the state before these
  };

  Place place(StateId state) const {
    const auto words = states_[state];
    return {words[0], static_cast<Mode>(words[1]), words[2], words[3], words[4]};
  }
  StateId intern(const Place& at) {
    if (at.json == kDead && at.before == kDead) {
      return kDead;
    }
    const std::array<uint32_t, 5> words = {at.json, static_cast<uint32_t>(at.mode), at.stack,
                                           at.quoted, at.before};
    return states_.intern(words);
  }
  static StateId json_state(const Place& at) { return at.json != kDead ? at.json : at.before; }

  StateId walk(StateId json, std::string_view bytes) {
    for (size_t i = 0; i < bytes.size() && json != kDead; ++i) {
      json = values_->next(json, static_cast<uint8_t>(bytes[i]));
    }
    return json;
  }
  Place with_quote(Place at) {
    at.json = walk(at.json, "\"");
    return at;
  }

  bool in_object(uint32_t stack) const {
    const auto words = stacks_[stack];
    return !words.empty() && words[1] != 0;
  }
  Place opened(Place at, bool is_object) {
    const std::array<uint32_t, 2> words = {at.stack, is_object ? 1U : 0U};
    at.stack = at.json == kDead ? 0 : stacks_.intern(words);
    at.mode = is_object ? Mode::kNameStart : Mode::kPlain;
    return at;
  }

  Place after_plain(Place at, uint8_t byte) {
    if (byte == '"' || byte == ':') {
      return {};
    }
    if (!quote_ && byte == static_cast<uint8_t>(kGemmaQuote.front())) {
      const bool is_string = walk(at.json, "\"") != kDead;
      return is_string ? Place{at.json, Mode::kQuote, at.stack, 1} : Place{};
    }
    at.json = values_->next(at.json, byte);
    if (byte == '{' || byte == '[') {
      return opened(at, byte == '{');
    }
    if ((byte == '}' || byte == ']') && at.json != kDead) {
      at.stack = stacks_[at.stack][0];
    }
    at.mode = byte == ',' && in_object(at.stack) ? Mode::kNameStart : Mode::kPlain;
    return at;
  }

  Place after_name(Place at, uint8_t byte) {
    at.mode = byte == ':' ? Mode::kPlain : Mode::kName;
    at.json = walk(at.json, byte == ':' ? "\":" : spelling_[byte]);
    return at;
  }

  /// Within a string: a byte of it, or of the quote behind it, which may both be.
  Place after_text(Place at, uint8_t byte) {
    const Place then = {walk(at.json, spelling_[byte]), Mode::kString, at.stack};
    if (quote_) {
      return then;
    }
    const bool goes_on = at.quoted > 0 && byte == static_cast<uint8_t>(kGemmaQuote[at.quoted]);
    if (goes_on && at.quoted + 1 == kGemmaQuote.size()) {
      return {walk(at.before, "\""), Mode::kPlain, at.stack};
    }
    if (goes_on) {
      return {then.json, Mode::kString, at.stack, at.quoted + 1, at.before};
    }
    const bool begins =
        byte == static_cast<uint8_t>(kGemmaQuote.front()) && walk(at.json, "\"") != kDead;
    return begins ? Place{then.json, Mode::kString, at.stack, 1, at.json} : then;
  }

  Place after_quote(Place at, uint8_t byte) {
    if (byte != static_cast<uint8_t>(kGemmaQuote[at.quoted])) {
      return {};
    }
    ++at.quoted;
    return at.quoted == kGemmaQuote.size() ? quoted({at.json, Mode::kPlain, at.stack}) : at;
  }

  /// Behind a whole quote.
  Place quoted(const Place& at) {
    const bool begins = at.mode == Mode::kPlain;
    return {walk(at.json, "\""), begins ? Mode::kString : Mode::kPlain, at.stack};
  }

  /// A way to the end of the text or the beginning of one; empty where it begins with the token;
  /// nothing where JSON knows none.
  std::optional<std::string> way_out(StateId state) {
    const Place at = place(state);
    if (at.mode == Mode::kQuote || (at.quoted > 0 && at.before != kDead)) {
      return std::string(kGemmaQuote.substr(at.quoted));
    }
    const std::optional<std::string> known = values_->completion(at.json);
    if (!known) {
      return std::nullopt;
    }
    const std::string& json = *known;
    const std::string quote = quote_ ? "" : std::string(kGemmaQuote);
    if (at.mode == Mode::kPlain || (at.mode == Mode::kNameStart && json.starts_with('}'))) {
      const std::string plain = json.substr(0, json.find('"'));
      return plain.empty() && !json.empty() ? quote : plain;
    }
    const std::string text =
        plain_beginning(std::string_view(json).substr(at.mode == Mode::kNameStart ? 1 : 0));
    return !text.empty() ? text : at.mode == Mode::kString ? quote : ":";
  }

  std::unique_ptr<Automaton> values_;
  std::optional<Token> quote_;
  SequenceTable states_;  ///< five words a place
  SequenceTable stacks_;  ///< the stack below, and whether an object is open
  JsonSpelling spelling_ = json_spelling();
  StateId start_ = kDead;
};

}  // namespace

std::unique_ptr<Automaton> make_gemma_values_automaton(std::unique_ptr<Automaton> values,
                                                       std::optional<Token> quote) {
  return std::make_unique<GemmaValuesAutomaton>(std::move(values), quote);
}

}  // namespace specdec
