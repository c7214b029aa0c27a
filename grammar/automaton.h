#pragma once
#include <bitset>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace specdec {

/// A state of a grammar's automaton: all that matters of the text so far.
using StateId = uint32_t;

class StringStates;

/// A part of a text.
struct TextPart {
  std::string_view bytes;
  std::optional<Token> named = {};  ///< a token that stands for itself, not for these bytes
  bool ends_token = false;          ///< a token ends behind the bytes
};

/// What a rule matched that is marked for it.
struct Capture {
  std::string name;
  std::string bytes;
  bool operator==(const Capture&) const = default;
};

/// A grammar as an automaton over bytes, deterministic, built as it is walked. Every state but
/// kDead has a completion: nobody runs into a dead end. Not safe for use by several threads at
/// once.
class Automaton {
 public:
  static constexpr StateId kDead = 0;
  using Bytes = std::bitset<256>;

  virtual ~Automaton() = default;

  /// kDead when the grammar has no text at all.
  virtual StateId start() = 0;
  /// The state after one more byte; kDead when no text of the grammar goes on so.
  virtual StateId next(StateId state, uint8_t byte) = 0;
  /// True when the text so far is in the grammar.
  virtual bool is_complete(StateId state) = 0;
  /// What may come next and why, for people: one line a possibility.
  virtual std::string explain(StateId state) = 0;

  /// One of the calls below begins, or several that belong together: limits of time hold for them.
  virtual void begin_call() {}
  /// Share of the states that it may build that it has built: from 0 to 1.
  virtual double used() const { return 0.0; }
  /// A short way to the end of the text, or the beginning of one, which is empty only at the end;
  /// nothing when the automaton knows none. `state` is not kDead.
  virtual std::optional<std::string> completion(StateId /*state*/) { return std::nullopt; }
  /// Bytes that may have a next state; others have none.
  virtual Bytes candidates(StateId /*state*/) { return Bytes().set(); }
  /// What masks may know of the states inside quoted strings, which many grammars share; nullptr:
  /// nothing.
  virtual StringStates* string_states() { return nullptr; }

  /// Tokens that stand in the texts as themselves: never as their bytes, which may come as those of
  /// other tokens only. Sorted; of all states together.
  virtual std::vector<Token> named_tokens() const { return {}; }
  /// Tokens of those that may come, sorted.
  virtual std::vector<Token> tokens(StateId /*state*/) { return {}; }
  /// The state after one of them; kDead when it may not come.
  virtual StateId next_token(StateId /*state*/, Token /*token*/) { return kDead; }
  /// The named token that a short way to the end of the text begins with, if it begins with one;
  /// `completion` is then nothing.
  virtual std::optional<Token> completion_token(StateId /*state*/) { return std::nullopt; }

  /// The state where a token ends that led there by its bytes. Grammars that count no tokens stay
  /// where they are. Never kDead but for kDead.
  virtual StateId end_token(StateId state) { return state; }
  /// A state with the same mask: one for all states that differ only in the tokens that were
  /// counted.
  virtual StateId mask_state(StateId state) { return state; }

  /// What the rules matched that are marked for it, in the order of the text. Of a text that may go
  /// on, those that have ended in its shortest continuation. None where the grammar marks none, or
  /// has no such text. Throws GrammarError when the text is too long for it.
  virtual std::vector<Capture> captures(std::span<const TextPart> /*text*/) { return {}; }
};

}  // namespace specdec
