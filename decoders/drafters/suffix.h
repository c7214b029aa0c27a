#pragma once
#include <memory>

#include "decoders/drafter.h"
#include "decoders/drafters/suffix_automaton.h"

namespace specdec {

struct SuffixOptions {
  int64_t min_match = 1;         ///< shortest match that is worth a draft
  double factor = 1.0;           ///< a match of m tokens drafts up to factor * m + offset
  double offset = 0.0;           ///< the same; may be negative
  double min_probability = 0.1;  ///< least probability of a drafted path, by counts
  int64_t max_depth = 64;        ///< depth of a draft, at most
};

/// Proposes what followed the newest tokens earlier, by counts: in prompt and output, and in a
/// corpus of other texts, such as earlier generations, when one is given.
///
/// Matches of every length compete, as in suffix decoding (Oliaro et al., 2024, arXiv:2411.04975):
/// each drafts as far as its length allows, and the draft with the largest expected number of
/// accepted tokens is taken, of equals that of the longest match. Matches are found in suffix
/// automatons, as in SAM decoding (Hu et al., 2024, arXiv:2411.10666); a corpus serves as in REST
/// (He et al., 2023, arXiv:2311.08252). A chain follows the most frequent token; where branches are
/// allowed, the tree holds the paths with the largest probability.
class SuffixDrafter final : public Drafter {
 public:
  /// Looks up in the text and in `corpus`, which may be nullptr and can be shared. Throws
  /// ConfigError for options out of range.
  explicit SuffixDrafter(const SuffixOptions& options = {},
                         std::shared_ptr<const SuffixAutomaton> corpus = nullptr);
  void reset() override;
  Draft propose(const DraftContext& context) override;

 private:
  /// Brings the automaton and the place in the corpus in line.
  void update(TokenSpan committed);
  /// Puts the best draft of a text's match, and of all shorter ones, into `best` if it is better.
  void try_matches(const SuffixAutomaton& text, SuffixAutomaton::Match match,
                   const DraftContext& context, GrownDraft& best) const;

  SuffixOptions options_;
  std::shared_ptr<const SuffixAutomaton> corpus_;
  SuffixAutomaton text_;
  std::vector<Token> tokens_;  // what the automaton holds
  SuffixAutomaton::Match in_corpus_;
};

}  // namespace specdec
