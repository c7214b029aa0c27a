#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/json_plan.h"
#include "grammar/json_string_decoder.h"

namespace specdec {

/// White space between the tokens of JSON.
struct WhitespaceStyle {
  enum class Kind {
    kCompact,  ///< none
    kSpaced,   ///< one space after ',' and ':'
    kAny,      ///< up to `limit` characters between any two tokens
    kIndent,   ///< a line for each item and property, `limit` spaces a level
  };
  Kind kind = Kind::kCompact;
  uint32_t limit = 0;
};

struct JsonAutomatonOptions {
  WhitespaceStyle whitespace;
  EscapeStyle escapes = EscapeStyle::kAny;
  NumberStyle numbers = NumberStyle::kAny;
};

/// The texts of all JSON values that satisfy a formula. A state is a set of threads, one for each
/// alternative that is still alive at this place; each has its own stack of open lists and objects,
/// shared where they are equal. Object keys never come twice.
class JsonAutomaton final : public Automaton {
 public:
  /// Borrows all three.
  JsonAutomaton(FormulaStore& formulas, JsonPlans& plans, FormulaId root,
                JsonAutomatonOptions options);
  ~JsonAutomaton() override;

  StateId start() override;
  StateId next(StateId state, uint8_t byte) override;
  bool is_complete(StateId state) override;
  std::string explain(StateId state) override;
  Bytes candidates(StateId state) override;
  bool string_place(StateId state, StringPlace& place) override;

 private:
  class Step;
  enum class Kind : uint8_t {
    kValue,        ///< a: goal
    kString,       ///< a: string state
    kNumber,       ///< a: number state
    kLiteral,      ///< a: null, false or true; b: letters so far
    kArrayOpen,    ///< a: array state; only its end may come
    kArrayNext,    ///< a: array state; after an item
    kArrayClose,   ///< a: array state; its end, on a line of its own
    kObjectOpen,   ///< a: object state; only its end may come
    kKeyStart,     ///< a: object state; a name must come
    kKey,          ///< a: key state
    kColon,        ///< a: list of choices
    kObjectNext,   ///< a: object state; after a property
    kObjectClose,  ///< a: object state; its end, on a line of its own
    kDone,
  };
  struct Thread {
    Kind kind = Kind::kDone;
    uint32_t a = 0;
    uint32_t b = 0;
    uint32_t stack = 0;
    auto operator<=>(const Thread&) const = default;
  };
  /// What goes on when a value ends.
  struct Entry {
    enum class Kind : uint32_t { kEnd, kArray, kUniqueArray, kObject };
    Kind kind = Kind::kEnd;
    uint32_t state = 0;
    uint32_t stack = 0;
    uint32_t text_start = 0;  ///< kUniqueArray: where the item begins in the recorded text
    auto operator<=>(const Entry&) const = default;
  };
  struct State {
    std::vector<Thread> threads;
    uint32_t depth = 0;       ///< open lists and objects
    uint32_t pad = 0;         ///< white space that must come now: kNewline | spaces
    uint32_t spaces = 0;      ///< optional white space so far
    uint32_t text = 0;        ///< recorded since an item of a unique array began
    uint32_t text_depth = 0;  ///< depth of that array; 0: nothing is recorded
  };
  struct StringState {
    RegexId language = RegexStore::kAll;
    uint64_t min = 0;
    uint64_t max = kUnbounded;
    JsonStringDecoder decoder;
  };
  enum class NumberPhase : uint8_t {
    kStart,
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kLetter,
    kSign,
    kExponent
  };
  struct NumberState {
    uint32_t plan = 0;
    NumberPhase phase = NumberPhase::kStart;
    uint32_t text = 0;  ///< 0 when the phase says all
  };
  struct KeyState {
    ObjectStateId object = 0;
    uint32_t first = 0, last = 0;  ///< the plan's names that begin so
    std::vector<RegexId> classes;  ///< what may follow in each class
    uint32_t text = 0;             ///< in key_texts_
    uint32_t length = 0;
    JsonStringDecoder decoder;
  };
  /// Texts as a tree of their prefixes: equal texts have equal ids.
  class Texts {
   public:
    uint32_t append(uint32_t text, uint32_t symbol);
    std::vector<uint32_t> symbols(uint32_t text) const;
    uint32_t length(uint32_t text) const { return text == 0 ? 0 : nodes_[text - 1].length; }

   private:
    struct Node {
      uint32_t parent = 0, symbol = 0, length = 0;
    };
    std::vector<Node> nodes_;
    std::unordered_map<uint64_t, uint32_t> children_;
  };

  static constexpr uint32_t kNewline = 1U << 31;
  /// Recorded text that is not known: masks look at places that many texts lead to.
  static constexpr uint32_t kUnknownText = ~uint32_t{0};

  StateId intern(State state);
  uint32_t intern_stack(std::vector<Entry> entries);
  uint32_t intern_string(const StringState& state);
  uint32_t intern_number(const NumberState& state);
  uint32_t intern_key(KeyState state);
  uint32_t intern_choices(std::vector<Choice> choices);

  bool alive(const StringState& state);
  bool alive(const KeyState& state);
  bool has_fresh_word(const KeyState& state, RegexId language);
  bool number_complete(const NumberState& state) const;
  Bytes candidates(const State& state, const Thread& thread);
  void add_name_parts(const Thread& thread, const State& state, StringPlace& place);
  /// The state after a value that ended in a string's quote.
  StateId closed(const State& state, std::vector<Thread> threads);
  std::vector<Thread> after_value(uint32_t stack) const;
  bool is_textless(const NumberPlan& plan) const;
  std::string recorded(uint32_t text) const;
  std::string explain_names(ObjectStateId id);
  std::string explain_string(const StringState& state);
  std::string explain_thread(const Thread& thread);

  FormulaStore& formulas_;
  JsonPlans& plans_;
  FormulaId root_;
  JsonAutomatonOptions options_;
  std::vector<State> states_;
  std::unordered_map<std::string, StateId> state_ids_;
  std::unordered_map<uint64_t, StateId> transitions_;
  std::vector<std::vector<Entry>> stacks_;
  std::map<std::vector<Entry>, uint32_t> stack_ids_;
  std::vector<StringState> strings_;
  std::map<std::array<uint64_t, 4>, uint32_t> string_ids_;
  std::vector<NumberState> numbers_;
  std::map<std::array<uint32_t, 3>, uint32_t> number_ids_;
  std::vector<KeyState> keys_;
  std::map<std::vector<uint64_t>, uint32_t> key_ids_;
  std::vector<std::vector<Choice>> choices_;
  std::map<std::vector<std::pair<FormulaId, uint32_t>>, uint32_t> choice_ids_;
  Texts texts_;      ///< bytes of numbers and of items of unique arrays
  Texts key_texts_;  ///< code points of property names
};

}  // namespace specdec
