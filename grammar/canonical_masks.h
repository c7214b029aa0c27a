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
#include "grammar/canonical_cuts.h"
#include "grammar/grammar_vocabulary.h"
#include "grammar/intern_table.h"
#include "grammar/token_mask.h"

namespace specdec {

/// The masks of a grammar whose texts are written as the tokenizer itself cuts them. A place is a
/// state of the automaton and what the tokens before mean for the next one. A token is allowed when
/// it may stand there and the place after it is alive: some text of the grammar goes on from there
/// in the tokenizer's own cut. That is known
/// - where the text is complete;
/// - where a byte may come that begins a new token whatever follows it: some text goes on with this
///   byte, by the automaton's promise, and so does the tokenizer's cut of it;
/// - where a token may come after which the place is alive, looked for `kDepth` tokens far through
///   masks of at most `kWidth` tokens.
/// All of it depends on the place alone, so a place has the same mask whenever it is met. Where
/// nothing is found alive the mask is that of what may stand there, and last the automaton's own:
/// never empty, but the text is then not cut as the tokenizer cuts it. Such masks say that they are
/// a fallback.
class CanonicalMasks {
 public:
  using Content = TokenMask::Content;
  using BaseMask = std::function<std::shared_ptr<const Content>(StateId)>;
  struct Place {
    StateId state = Automaton::kDead;
    CanonicalCuts::LeftId left = CanonicalCuts::kStart;
    bool operator==(const Place&) const = default;
  };

  static constexpr int kDepth = 6;
  static constexpr size_t kWidth = 256;

  /// Borrows all. `base`: the masks of states.
  CanonicalMasks(GrammarVocabulary& vocabulary, CanonicalCuts& cuts, Automaton& automaton,
                 BaseMask base);

  /// The number of a place; Automaton::kDead when its state is.
  StateId intern(const Place& place);
  const Place& place(StateId id) const { return places_[id]; }
  /// The place after a token that the mask allows.
  StateId next(StateId id, Token token);
  Content build(StateId id);

 private:
  struct Hash {
    size_t operator()(const Place& place) const;
  };
  /// What may stand at a place.
  struct Next {
    std::vector<Token> ends;
    MaskWords words;  ///< empty when the tokens are few
    std::vector<Token> few;
    size_t count() const;
  };
  /// Those of them that have to be looked into; the others are alive.
  struct Doubtful {
    std::vector<Token> tokens;          ///< in the trie's order when they are many
    std::optional<StringPlace> string;  ///< that the place lies in
    bool told_apart = false;            ///< it has a state for each text, too many to be made
  };

  Place after(const Place& place, Token token);
  Next next_of(const Place& place);
  Doubtful doubtful(const Place& place, const Next& next);
  std::vector<Token> dead_among(const Place& place, const Doubtful& doubtful);
  std::optional<bool> alive_by_language(const Place& place, const Doubtful& doubtful, Token token);
  bool leaves_room(const StringPlace& string, Token token) const;
  bool goes_on_inside(const StringPlace& string, std::string_view bytes,
                      const Automaton::Bytes& free);
  StateId walk(StateId state, std::string_view bytes);
  bool is_alive(const Place& place, int depth);
  bool some_byte_is_free(const Place& place);
  bool some_token_is_alive(const Place& place, int depth);

  GrammarVocabulary& vocabulary_;
  CanonicalCuts& cuts_;
  Automaton& automaton_;
  BaseMask base_;
  InternTable<Place, Hash> places_;
  std::array<std::unordered_map<uint64_t, bool>, kDepth> searched_;  ///< places, by depth
};

}  // namespace specdec
