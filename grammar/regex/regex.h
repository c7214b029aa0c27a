#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/regex/code_points.h"
#include "grammar/tables/hash.h"

namespace specdec {

/// A regular language over code points, and a state of the automaton that reads it: the language of
/// what may follow. Equal ids are equal languages; unequal ids may be equal ones too.
using RegexId = uint32_t;

/// All regular expressions of a process's grammars, hash-consed, with the automaton of their
/// derivatives built as it is asked for (Brzozowski 1964; Owens, Reppy and Turon 2009). For any
/// number of threads: transitions that are known are looked up without a lock, and a lock is held
/// only while one expression is made or the transitions of one state are.
class RegexStore {
 public:
  static constexpr RegexId kNothing = 0;  ///< no text at all
  static constexpr RegexId kEmpty = 1;    ///< only the empty text
  static constexpr RegexId kAll = 2;      ///< every text

  /// What follows after a code point up to `last` (and above the transition before it).
  struct Transition {
    char32_t last = 0;
    RegexId target = kNothing;
  };

  /// `max_states`: automaton states that may be built in all before GrammarError says that the
  /// expressions are too large.
  explicit RegexStore(uint64_t max_states = 1'000'000);
  ~RegexStore();
  RegexStore(const RegexStore&) = delete;
  RegexStore& operator=(const RegexStore&) = delete;

  /// From now on at most so many states more may be built, and never more than a quarter of what
  /// the store may still hold: one expression leaves room for the next. All threads together.
  void allow(uint64_t states);

  RegexId one_of(const CodePoints& points);  ///< one code point
  RegexId literal(std::u32string_view text);
  RegexId concat(std::span<const RegexId> parts);
  RegexId concat(RegexId first, RegexId second);
  RegexId any_of(std::span<const RegexId> parts);
  RegexId any_of(RegexId first, RegexId second);
  RegexId all_of(std::span<const RegexId> parts);
  RegexId all_of(RegexId first, RegexId second);
  RegexId complement(RegexId regex);
  /// `min` to `max` times; without `max` any number of times from `min` on. Counts up to 2^32 cost
  /// nothing to build.
  RegexId repeat(RegexId regex, uint64_t min, std::optional<uint64_t> max);
  /// A finite set of texts, as one trie-like expression: thousands of them stay cheap.
  RegexId words(std::vector<std::u32string> texts);

  /// The language of that name, made when it is first asked for: patterns and formats that many
  /// schemas share are read once.
  RegexId named(const std::string& name, const std::function<RegexId()>& make);

  bool matches_empty(RegexId regex) const;
  /// True when no text is in the language; exact, also for intersections and complements.
  bool is_nothing(RegexId regex);
  /// What may follow after `c`; kNothing exactly when nothing can.
  RegexId next(RegexId regex, char32_t c);
  /// All transitions: sorted, covering 0..CodePoints::kLast.
  std::vector<Transition> transitions(RegexId regex);
  /// True when some character of the ranges may come next.
  bool goes_on(RegexId regex, std::span<const CodePoints::Range> ranges);
  bool matches(RegexId regex, std::u32string_view text);

  /// True only when no text is in both; told by a walk through both automata of at most `most`
  /// steps, which are taken off it, so that no intersection is made.
  bool are_apart(RegexId a, RegexId b, uint64_t& most);
  bool are_apart(RegexId a, RegexId b);

  bool is_finite(RegexId regex);
  /// How many texts the language has, or `cap` when there are at least that many.
  uint64_t count(RegexId regex, uint64_t cap);
  /// The first `max` texts, shortest first, then by code points.
  std::vector<std::u32string> list(RegexId regex, uint64_t max);
  /// A shortest text, or a short one where a thousand states were seen before; nothing when
  /// there is none.
  std::optional<std::u32string> shortest(RegexId regex);
  /// The set C when the language is C*, else nothing: such strings need no automaton for their
  /// length.
  std::optional<CodePoints> star_of(RegexId regex) const;
  /// Characters of which every text goes on to some text of the language, told by the expression's
  /// form: it reads them in a loop. May be fewer than there are.
  CodePoints loop_of(RegexId regex);

  /// A key that is the same for the same expression, whatever else the store has and in whatever
  /// order it was made; different for different languages.
  WideHash::Value key(RegexId regex) const;
  uint64_t states() const;  ///< automaton states built so far
  uint64_t bytes() const;   ///< of memory
  /// True when more than half of the states were built that it may hold.
  bool is_half_full() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace specdec
