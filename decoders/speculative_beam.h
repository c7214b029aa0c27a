#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/language_model.h"
#include "decoders/beam_rows.h"
#include "decoders/beam_session.h"
#include "decoders/decoding_strategy.h"
#include "decoders/drafter.h"
#include "decoders/shapes/beam_shape.h"

namespace specdec {

/// Exact speculative beam search: the hypotheses and scores of BeamSearchDecoding, with fewer
/// forwards of the target.
///
/// A step drafts a tree for every running beam (see BeamShape) and evaluates all of them in one
/// forward. Beam steps are then replayed on the verified logits: as long as every running beam ends
/// in a drafted node, its logits are known and the next beam step needs no forward. The drafter is
/// asked for one beam after the other and so has to follow `committed` wherever it leads; drafters
/// that follow the target's hidden states are refused.
///
/// Rows that come from one old row along different paths share what their paths have in common; the
/// few tokens after that are evaluated again, ahead of the row's next draft, and so is what a cache
/// that cannot go back to every length (LanguageModel::rewindable_to) has given up.
///
/// StepStatistics, of one forward: `committed` counts the beam steps that it advanced, `accepted`
/// those beyond the first, `drafted` the nodes of all trees (not the tokens evaluated again) and
/// `depth` the deepest. So tokens per step is beam steps per forward; accepted / drafted is small
/// by nature, as a beam step needs several nodes.
class SpeculativeBeamSearch final : public DecodingStrategy {
 public:
  struct Options {
    BeamOptions beams;
    int64_t draft_length = 2;  ///< levels of the draft trees
    int64_t draft_width = 8;   ///< nodes a level, over all beams
  };

  /// Borrows the target. Throws ConfigError for options out of range and for a drafter that cannot
  /// serve several sequences or this target.
  SpeculativeBeamSearch(LanguageModel& target, std::unique_ptr<Drafter> drafter,
                        const Options& options);
  /// Searches. Throws ConfigError for what beam search cannot do: sampling, stop strings.
  Generation generate(const Request& request) override;
  void forget() override { drafter_->forget(); }

 private:
  /// The part of a row that a forward evaluates: committed tokens that are not cached, the newest
  /// of them being the draft's root, then the rest of the draft.
  struct RowDraft {
    Draft draft;
    int64_t uncached = 1;
    int64_t offset = 0;  // of the draft's root among all nodes of the forward
  };
  /// Place of a beam in the verified trees.
  struct Place {
    int64_t row = 0;   // of the beams before
    int64_t node = 0;  // of the row's draft
  };

  void draft(BeamSession& session, const BeamRows& rows, const Request& request);
  Draft propose(BeamSession& session, const Request& request, size_t beam);
  ForwardResult verify(const BeamSession& session, const BeamRows& rows);
  /// Advances the session as far as the verified logits reach; returns the place of each running
  /// beam's last verified token.
  std::vector<Place> replay(BeamSession& session, const Tensor& logits) const;
  /// Evaluates and keeps, in pieces, what rows have given up and no draft's forward should take.
  void read_again(const BeamSession& session, const BeamRows& rows);
  /// Rows follow the beams: what was verified of each beam is kept, as far as rows can share it.
  void settle(const BeamSession& session, const std::vector<Place>& places, BeamRows& rows);
  /// What each beam's next proposal may look at: its own last step.
  void note_steps(const BeamSession& session, const std::vector<Place>& places,
                  const ForwardResult& result);
  StepStatistics count(int64_t beam_steps) const;

  LanguageModel& target_;
  std::unique_ptr<Drafter> drafter_;
  Options options_;
  BeamShape shape_;
  std::vector<RowDraft> drafts_;        // [beams], of the step in progress
  std::vector<StepResult> last_steps_;  // [beams]; empty before the first step
};

}  // namespace specdec
