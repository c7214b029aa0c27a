#include "decoders/speculative_beam.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/prefill_size.h"
#include "core/prefix_store.h"
#include "decoders/step_draft.h"

namespace specdec {
namespace {

/// Tokens of a row that are evaluated together with its draft; more are read before it.
constexpr int64_t kMostReadWithDraft = 32;

/// The child of `node` that has this token; -1 when it was not drafted.
int64_t find_child(const Draft& draft, int64_t node, Token token) {
  for (size_t i = static_cast<size_t>(node) + 1; i < draft.tokens.size(); ++i) {
    if (draft.parents[i] == node && draft.tokens[i] == token) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

int64_t common_prefix(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

int64_t size_of(const Beam& beam) { return static_cast<int64_t>(beam.tokens.size()); }

void check_drafter(const Drafter& drafter, const LanguageModel& target) {
  const Needs needs = drafter.needs();
  if (needs.internals || !needs.capture_layers.empty()) {
    throw ConfigError(
        "this drafter follows the target's hidden states along one sequence, and beam search asks "
        "it for several in turn: choose a drafter that reads tokens only (draft_model, "
        "prompt_lookup)");
  }
  drafter.check(target);
}

}  // namespace

SpeculativeBeamSearch::SpeculativeBeamSearch(LanguageModel& target,
                                             std::unique_ptr<Drafter> drafter,
                                             const Options& options)
    : target_(target),
      drafter_(std::move(drafter)),
      options_(options),
      shape_(options.draft_length, options.draft_width) {
  options_.beams.validate();
  check_drafter(*drafter_, target_);
}

Generation SpeculativeBeamSearch::generate(const Request& request) {
  drafter_->reset();
  last_steps_.clear();
  BeamSession session(request, target_, options_.beams);
  const ForwardResult prompt = prefill_with(request.prefixes, target_, request.prompt);
  session.advance(std::vector<Tensor>{prompt.logits.select(0, 0).cpu()});
  session.prefilled();
  BeamRows rows(target_);
  if (!session.finished()) {
    rows.branch(std::vector<BeamRows::Branch>(session.beams().size(), {0, target_.length()}));
  }
  while (!session.finished()) {
    draft(session, rows, request);
    session.drafted();
    ForwardResult result = verify(session, rows);
    // Reading the logits back waits for the device, so it belongs to the forward's time.
    const Tensor logits = result.logits.cpu();
    session.verified();
    const int64_t steps_before = session.steps_left();
    const std::vector<Place> places = replay(session, logits);
    const StepStatistics counts = count(steps_before - session.steps_left());
    if (!session.finished()) {
      note_steps(session, places, result);
      settle(session, places, rows);
    }
    session.end_step(counts);
  }
  return std::move(session).finish();
}

void SpeculativeBeamSearch::draft(BeamSession& session, const BeamRows& rows,
                                  const Request& request) {
  std::vector<Token> ends = request.stop.end_ids;
  ends.insert(ends.end(), request.stop.stop_ids.begin(), request.stop.stop_ids.end());
  shape_.begin_step(std::move(ends));
  std::vector<BeamShape::Scored> grown;
  for (size_t beam = 0; beam < session.beams().size(); ++beam) {  // the best beam sets the bar
    shape_.begin_beam(session.beams()[beam].log_prob);
    grown.push_back(shape_.scored(propose(session, request, beam)));
  }
  drafts_.clear();
  int64_t nodes = 0;
  for (size_t beam = 0; beam < grown.size(); ++beam) {
    RowDraft planned{.draft = shape_.prune(grown[beam])};
    planned.uncached = size_of(session.beams()[beam]) - target_.length(rows.names()[beam]);
    planned.offset = nodes + planned.uncached - 1;
    nodes += planned.uncached + planned.draft.proposed();
    drafts_.push_back(std::move(planned));
  }
}

Draft SpeculativeBeamSearch::propose(BeamSession& session, const Request& request, size_t beam) {
  const std::vector<Token>& committed = session.beams()[beam].tokens;
  const std::optional<GrammarMatcher>& place = session.beams()[beam].grammar;
  request.random.seek(static_cast<int64_t>(committed.size()), Purpose::kDraft);
  const DraftContext context{.committed = committed,
                             .last_step = last_steps_.empty() ? nullptr : &last_steps_[beam],
                             .prompt_result = nullptr,
                             .random = request.random,
                             .sampling = request.sampling,
                             .grammar = place && request.constraint.mask_drafts ? &*place : nullptr,
                             .max_tokens = session.room(),
                             // The deepest nodes' logits give one beam step more.
                             .max_depth = std::min(session.steps_left() - 1, session.room()),
                             .max_branches = 1,  // the shape says how many
                             .shape = shape_,
                             .vocab_size = target_.vocab_size(),
                             .mask_seconds = session.mask_seconds()};
  return planned_draft(*drafter_, context);
}

ForwardResult SpeculativeBeamSearch::verify(const BeamSession& session, const BeamRows& rows) {
  TokenBatch batch;
  std::vector<Token> tokens;
  for (size_t row = 0; row < drafts_.size(); ++row) {
    const auto& [draft, uncached, offset] = drafts_[row];
    const std::vector<Token>& committed = session.beams()[row].tokens;
    tokens.insert(tokens.end(), committed.end() - uncached, committed.end());
    tokens.insert(tokens.end(), draft.tokens.begin() + 1, draft.tokens.end());
    for (int64_t node = 0; node < uncached; ++node) {
      batch.parents.push_back(node - 1);
    }
    for (size_t node = 1; node < draft.tokens.size(); ++node) {
      batch.parents.push_back(uncached - 1 + draft.parents[node]);
    }
    batch.rows.resize(tokens.size(), rows.names()[row]);
  }
  batch.tokens = at::tensor(tokens, at::kInt);
  return target_.forward(batch);
}

std::vector<SpeculativeBeamSearch::Place> SpeculativeBeamSearch::replay(
    BeamSession& session, const Tensor& logits) const {
  std::vector<Place> places;
  for (size_t row = 0; row < drafts_.size(); ++row) {
    places.push_back({static_cast<int64_t>(row), 0});
  }
  while (true) {
    std::vector<Tensor> verified;
    for (const Place& place : places) {
      verified.push_back(logits[drafts_[static_cast<size_t>(place.row)].offset + place.node]);
    }
    session.advance(verified);
    std::vector<Place> parents;
    std::vector<Place> children;
    bool all_drafted = true;
    for (const Beam& beam : session.beams()) {
      const Place& parent = places[static_cast<size_t>(beam.parent)];
      const Draft& draft = drafts_[static_cast<size_t>(parent.row)].draft;
      parents.push_back(parent);
      children.push_back({parent.row, find_child(draft, parent.node, beam.tokens.back())});
      all_drafted &= children.back().node >= 0;
    }
    if (session.finished() || !all_drafted) {
      return parents;
    }
    places = std::move(children);
  }
}

void SpeculativeBeamSearch::note_steps(const BeamSession& session, const std::vector<Place>& places,
                                       const ForwardResult& result) {
  std::vector<StepResult> steps;
  for (size_t beam = 0; beam < places.size(); ++beam) {
    const RowDraft& row = drafts_[static_cast<size_t>(places[beam].row)];
    StepResult step;
    step.draft = row.draft;
    step.result.logits = result.logits.narrow(0, row.offset, row.draft.size());
    step.verified = {.path = row.draft.path_to(places[beam].node),
                     .next = session.beams()[beam].tokens.back()};
    steps.push_back(std::move(step));
  }
  last_steps_ = std::move(steps);
}

void SpeculativeBeamSearch::settle(const BeamSession& session, const std::vector<Place>& places,
                                   BeamRows& rows) {
  std::vector<std::vector<int64_t>> kept(drafts_.size());  // paths; none = not decided
  std::vector<BeamRows::Branch> branches;
  for (size_t beam = 0; beam < places.size(); ++beam) {
    const auto row = static_cast<size_t>(places[beam].row);
    const std::vector<int64_t> path = drafts_[row].draft.path_to(places[beam].node);
    if (kept[row].empty()) {  // the best beam of a row decides what the row keeps
      kept[row] = path;
      const int64_t root = drafts_[row].uncached - 1;  // among the row's pending nodes
      std::vector<int64_t> nodes = chain_path(root);
      for (const int64_t node : path) {
        nodes.push_back(root + node);
      }
      target_.commit(nodes, rows.names()[row]);
    }
    const int64_t lost = std::ssize(path) - common_prefix(path, kept[row]);
    // Caches that cannot go back to every length say from where the text is read again.
    const int64_t shared =
        target_.rewindable_to(size_of(session.beams()[beam]) - 1 - lost, rows.names()[row]);
    branches.push_back({places[beam].row, shared});
  }
  rows.branch(branches);
  read_again(session, rows);
}

void SpeculativeBeamSearch::read_again(const BeamSession& session, const BeamRows& rows) {
  for (size_t beam = 0; beam < session.beams().size(); ++beam) {
    const TokenSpan committed = session.beams()[beam].tokens;
    const RowId row = rows.names()[beam];
    int64_t known = target_.length(row);
    for (int64_t missing = std::ssize(committed) - 1 - known; missing > kMostReadWithDraft;) {
      const int64_t count = std::min(missing, kPrefillTokens);
      const std::vector<int64_t> chain = chain_path(count);
      TokenBatch piece{.tokens = token_tensor(committed.subspan(static_cast<size_t>(known),
                                                                static_cast<size_t>(count))),
                       .rows = std::vector<RowId>(static_cast<size_t>(count), row)};
      piece.parents.push_back(-1);
      piece.parents.insert(piece.parents.end(), chain.begin(), chain.end() - 1);
      (void)target_.forward(piece, {.logits = Logits::kNone});
      target_.commit(chain, row);
      known += count;
      missing -= count;
    }
  }
}

StepStatistics SpeculativeBeamSearch::count(int64_t beam_steps) const {
  StepStatistics counts{.accepted = beam_steps - 1, .committed = beam_steps};
  for (const RowDraft& row : drafts_) {
    counts.drafted += row.draft.proposed();
    counts.depth = std::max(counts.depth, row.draft.depth());
  }
  return counts;
}

}  // namespace specdec
