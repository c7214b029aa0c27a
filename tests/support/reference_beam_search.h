#pragma once
#include <vector>

#include "decoders/beam_session.h"
#include "tests/support/sequence_distribution.h"

namespace specdec {

/// Beam search over a table, written as Hugging Face's tensors have it (fixed numbers of slots, and
/// -1e9 for what does not count), without models, sessions or caches. All num_beams hypotheses that
/// were found, best first. Needs a vocabulary of at least num_beams tokens that do not end.
std::vector<Hypothesis> reference_beam_search(const LogitTable& target, const Task& task,
                                              const BeamOptions& options);

}  // namespace specdec
