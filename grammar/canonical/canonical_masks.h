#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/canonical/canonical_cuts.h"
#include "grammar/json/open_string.h"
#include "grammar/masks/vocabulary_tokens.h"
#include "grammar/regex/regex.h"
#include "grammar/tables/intern_table.h"
#include "grammar/token_mask.h"

namespace specdec {

/// The masks of a grammar whose texts are written as the tokenizer itself cuts them. A cut state
/// is a state of the automaton and what the tokens before mean for the next one. A token is allowed
/// when it may stand there and the cut state after it is alive: some text of the grammar goes on
/// from there in the tokenizer's own cut. That is known
/// - where the text is complete;
/// - where a byte may come that begins a new token whatever follows it: some text goes on with this
///   byte, by the automaton's promise, and so does the tokenizer's cut of it;
/// - where a token may come after which the cut state is alive, looked for `kDepth` tokens far
/// through
///   masks of at most `kWidth` tokens.
/// All of it depends on the cut state alone, which has the same mask whenever it is met. Where
/// nothing is found alive the mask is that of what may stand there, and last the automaton's own:
/// never empty, but the text is then not cut as the tokenizer cuts it. Such masks say that they are
/// a fallback.
class CanonicalMasks {
 public:
  using Content = TokenMask::Content;
  using BaseMask = std::function<std::shared_ptr<const Content>(StateId)>;
  struct CutState {
    StateId state = Automaton::kDead;
    CanonicalCuts::LeftId left = CanonicalCuts::kStart;
    bool operator==(const CutState&) const = default;
  };

  static constexpr int kDepth = 6;
  static constexpr size_t kWidth = 256;

  /// Borrows all. `base`: the masks of states.
  CanonicalMasks(const VocabularyTokens& tokens, RegexStore& regexes, CanonicalCuts& cuts,
                 Automaton& automaton, BaseMask base);

  /// The number of a cut state; Automaton::kDead when its state is.
  StateId intern(const CutState& at);
  const CutState& cut_state(StateId id) const { return cut_states_[id]; }
  /// The cut state after a token that the mask allows.
  StateId next(StateId id, Token token);
  Content build(StateId id);

 private:
  struct Hash {
    size_t operator()(const CutState& at) const;
  };
  /// Tokens that may stand at a cut state.
  struct Next {
    std::vector<Token> ends;  ///< end tokens and named ones, which no cut concerns
    MaskWords words;          ///< empty when the tokens are few
    std::vector<Token> few;
    size_t count() const;
  };
  /// Tokens of a Next that have to be looked into; after the others the cut state is alive.
  struct Doubtful {
    std::vector<Token> tokens;         ///< in the trie's order when they are many
    std::optional<OpenString> string;  ///< that has begun
    bool told_apart = false;           ///< it has a state for each text, too many to be made
  };

  CutState after(const CutState& at, Token token);
  Next next_of(const CutState& at);
  Doubtful doubtful(const CutState& at, const Next& next);
  std::vector<Token> dead_among(const CutState& at, const Doubtful& doubtful);
  std::optional<bool> alive_by_language(const CutState& at, const Doubtful& doubtful, Token token);
  bool leaves_room(const OpenString& string, Token token) const;
  bool goes_on_inside(const OpenString& string, std::string_view bytes,
                      const Automaton::Bytes& free);
  StateId walk(StateId state, std::string_view bytes);
  bool is_alive(const CutState& at, int depth);
  bool some_byte_is_free(const CutState& at);
  bool some_token_is_alive(const CutState& at, int depth);

  const VocabularyTokens& tokens_;
  RegexStore& regexes_;
  CanonicalCuts& cuts_;
  Automaton& automaton_;
  StringStates* string_states_;
  BaseMask base_;
  InternTable<CutState, Hash> cut_states_;
  std::vector<Token> named_tokens_;
  std::array<std::unordered_map<uint64_t, bool>, kDepth> searched_;  ///< by depth
};

}  // namespace specdec
