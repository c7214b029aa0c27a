#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/json/json_plans.h"
#include "grammar/json/json_string_decoder.h"
#include "grammar/json/open_string.h"
#include "grammar/numbers/number_automaton.h"
#include "grammar/tables/flat_map.h"
#include "grammar/tables/growing_trie.h"
#include "grammar/tables/intern_table.h"

namespace specdec {

/// White space between the tokens of JSON.
struct WhitespaceStyle {
  enum class Kind {
    kCompact,  ///< none
    kSpaced,   ///< one space after ',' and ':'
    kAny,      ///< between any two tokens up to `limit` characters, beside a `line_break`
    kIndent,   ///< a line for each item and property, `limit` spaces a level
  };
  Kind kind = Kind::kCompact;
  uint32_t limit = 0;
  bool line_break = false;  ///< kAny: one line break may come that the limit does not count
};

struct JsonAutomatonOptions {
  WhitespaceStyle whitespace;
  Escapes escapes;
  NumberStyle numbers = NumberStyle::kAny;
  uint64_t max_states = 1'000'000;
};

/// The texts of all JSON values that satisfy a formula. A state is a set of threads, one for each
/// alternative that is still alive at this place; each has its own stack of open lists and objects,
/// shared where they are equal. Object keys never come twice.
class JsonAutomaton final : public Automaton, private StringStates {
 public:
  /// Borrows all three.
  JsonAutomaton(FormulaStore& formulas, JsonPlans& plans, NumberAutomata& numbers, FormulaId root,
                JsonAutomatonOptions options);
  ~JsonAutomaton() override;

  StateId start() override;
  StateId next(StateId state, uint8_t byte) override;
  bool is_complete(StateId state) override;
  std::string explain(StateId state) override;
  double used() const override {
    return static_cast<double>(states_.size()) / static_cast<double>(options_.max_states);
  }
  std::optional<std::string> completion(StateId state) override;
  Bytes candidates(StateId state) override;
  StringStates* string_states() override { return this; }

 private:
  bool describe(StateId state, OpenString& string) override;

  class Explain;
  class PartialItem;
  class Step;
  class ExcludedValues;
  class Completion;
  enum class Kind : uint8_t {
    kValue,        ///< a: goal
    kString,       ///< a: string state
    kNumber,       ///< a: number plan; b: state of its automaton
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
    auto operator<=>(const Thread&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  /// What goes on when a value ends; a unique array is any that tells values apart.
  struct Entry {
    enum class Kind : uint32_t { kEnd, kArray, kUniqueArray, kObject };
    Kind kind = Kind::kEnd;
    uint32_t state = 0;
    uint32_t stack = 0;
    uint32_t text_start = 0;  ///< kUniqueArray: where the item begins in the recorded text
    auto operator<=>(const Entry&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct State {
    std::span<const Thread> threads;  ///< sorted; of a state that was met: in `threads_`
    uint32_t depth = 0;               ///< open lists and objects
    uint32_t pad = 0;                 ///< white space that must come now: kNewline | spaces
    uint32_t spaces = 0;      ///< optional white space so far; kNewline: its line break came
    uint32_t text = 0;        ///< recorded since an item of a unique array began
    uint32_t text_depth = 0;  ///< depth of that array; 0: nothing is recorded
    /// Where an item ended whose text was not known: the array's state without it, plus one.
    uint32_t guessed = 0;
    uint32_t guessed_depth = 0;  ///< of that array; with kBegun where its next item has begun
    bool operator==(const State& other) const;
  };
  struct StringState {
    RegexId language = RegexStore::kAll;
    uint64_t min = 0;
    uint64_t max = kUnbounded;
    JsonStringDecoder decoder;
    bool operator==(const StringState&) const = default;
  };
  struct KeyState {
    ObjectStateId object = 0;
    uint32_t first = 0, last = 0;  ///< the plan's names that begin so
    std::vector<RegexId> classes;  ///< what may follow in each class
    uint32_t text = 0;             ///< in key_texts_; 0 where names do not matter
    uint32_t length = 0;           ///< 0 when neither the text nor the plan's names matter any more
    JsonStringDecoder decoder;
    bool operator==(const KeyState&) const = default;
  };
  struct Hash {
    size_t operator()(const State& state) const;
    size_t operator()(const StringState& state) const;
    size_t operator()(const KeyState& state) const;
    size_t operator()(const std::vector<Entry>& entries) const;
    size_t operator()(const std::vector<Choice>& choices) const;
  };
  static constexpr std::array<std::string_view, 3> kLiterals = {"null", "false", "true"};
  static constexpr uint32_t kNewline = 1U << 31;
  /// Recorded text that is not known: masks look at places that many texts lead to.
  static constexpr uint32_t kUnknownText = ~uint32_t{0};
  static constexpr uint32_t kManyGuessed = ~uint32_t{0};  ///< items of several arrays
  static constexpr uint32_t kBegun = 1U << 31;

  /// The state with these threads, in any order.
  StateId intern(State state, std::vector<Thread> threads);
  std::span<const Thread> store(std::span<const Thread> threads);
  uint32_t intern_stack(std::vector<Entry> entries);

  bool alive(const StringState& state);
  bool alive(const KeyState& state);
  /// A text of the language that is neither the rest of one of the plan's names nor of one seen.
  std::optional<std::u32string> fresh_word(const KeyState& state, RegexId language);
  NumberAutomaton& numbers(uint32_t plan);
  Bytes candidates(const State& state, const Thread& thread);
  bool depends_on_string(StateId state) override;
  static void guess(State& state, ArrayStateId array, uint32_t depth);
  bool item_is_open(const State& state, const Thread& thread);
  void add_name_parts(const Thread& thread, const State& state, OpenString& string);
  /// The state after a value that ended in a string's quote.
  StateId closed(const State& state, std::vector<Thread> threads);
  std::vector<Thread> after_value(uint32_t stack);
  std::string recorded(uint32_t text) const;
  std::string character_rest(StateId id);
  std::string with_padding(StateId id, std::string_view text);

  FormulaStore& formulas_;
  JsonPlans& plans_;
  NumberAutomata& number_automata_;
  FormulaId root_;
  JsonAutomatonOptions options_;
  InternTable<State, Hash> states_;
  std::vector<std::unique_ptr<Thread[]>> threads_;  ///< of the states, many in one piece
  std::span<Thread> free_threads_;                  ///< at the end of the last piece
  FlatMap transitions_;
  InternTable<std::vector<Entry>, Hash> stacks_;
  InternTable<StringState, Hash> strings_;
  std::vector<std::shared_ptr<NumberAutomaton>> numbers_;  ///< by plan, where asked for
  InternTable<KeyState, Hash> keys_;
  InternTable<std::vector<Choice>, Hash> choices_;
  GrowingTrie texts_;                       ///< bytes of items of unique arrays
  GrowingTrie& key_texts_;                  ///< code points of property names
  std::shared_ptr<Completion> completion_;  ///< made when first asked for
  std::shared_ptr<ExcludedValues> excluded_values_;
};

}  // namespace specdec
