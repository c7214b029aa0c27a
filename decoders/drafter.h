#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/draft.h"
#include "core/forward.h"
#include "core/language_model.h"
#include "core/randomness.h"
#include "core/read_backs.h"
#include "core/sampling.h"
#include "decoders/draft_shape.h"
#include "decoders/verifier.h"

namespace specdec {

class GrammarMatcher;

/// DraftContext::vocab_size where nobody has said it.
inline constexpr int64_t kUnknownVocabulary = std::numeric_limits<Token>::max();

/// What a component needs of the target model; checked before a run, and refused with a reason.
struct Needs {
  std::vector<int64_t> capture_layers = {};  ///< residual streams that StepResult must hold
  bool internals = false;                    ///< LanguageModel::internals()
  /// Whether a drafter with internals gets final hidden states of the whole prompt; false: of its
  /// last token.
  bool prompt_states = true;
  /// Hidden states and layers of StepResult may lie on the target's device.
  bool on_device = false;
  bool logits = false;  ///< StepResult's logits; without them it may have the best tokens alone
};

/// One verified draft, as the next proposal sees it.
struct StepResult {
  Draft draft;
  ForwardResult result;  ///< of ALL nodes, what Needs names: logits, hidden states (with
                         ///< internals), captured layers
  VerifyResult verified;
};

/// What a drafter may look at. Lives for one call of propose.
struct DraftContext {
  TokenSpan committed;  ///< prompt and output; the newest one is not cached yet
  /// The last verified draft, whoever proposed it: this drafter, another one, a grammar, or nobody
  /// (a root alone). nullptr before the first verification.
  const StepResult* last_step;
  /// Result of the prompt's prefill, in a request's first call when Needs asks for layers or
  /// internals; else nullptr. It holds the features of the whole prompt, so it is gone after that
  /// call.
  const ForwardResult* prompt_result;
  Randomness& random;              ///< already at Purpose::kDraft of the next position
  const SamplingParams& sampling;  ///< the target's processing; a sampling drafter uses the same
  /// The grammar's place after `committed`, or nullptr when drafts are not masked; fork it, never
  /// advance it. DraftGrowth masks the distributions of drafters who implement ChildDistribution.
  const GrammarMatcher* grammar;
  int64_t max_tokens;    ///< propose at most this many; at least 1, except in `skip`
  int64_t max_depth;     ///< depth of the deepest node; a chain of n tokens is n deep
  int64_t max_branches;  ///< children of a node; 1 = propose a chain
  DraftShape& shape;     ///< grows the drafts of those who implement ChildDistribution
  /// Nodes, beside the root, that the drafter's ChildDistribution can be asked for in this draft:
  /// what its cache has room for. DraftGrowth asks for no more.
  int64_t max_evaluated = std::numeric_limits<int64_t>::max();
  /// Tokens of the target's vocabulary; a draft has no others.
  int64_t vocab_size = kUnknownVocabulary;
  /// The numbers of `random`, where a device that has them may draw a draft: then its distributions
  /// stay there, and the host reads them only to verify the draft itself. None = the host draws.
  std::optional<DeviceRandomness> device_random = {};
  /// Sum to which a drafter with a model adds what was copied to the host. nullptr = nobody asks.
  ReadBacks* read_backs = nullptr;
  /// Sum to which a drafter that keeps a cache adds the seconds of reading the prompt into it, once
  /// a request; they are shown apart. nullptr = nobody asks.
  double* prompt_seconds = nullptr;
  /// Sum to which the grammar's masks of the draft add their seconds. nullptr = nobody asks.
  double* mask_seconds = nullptr;
};

/// Proposes what may come next: what a researcher subclasses. One drafter serves one request at a
/// time; `reset` begins a new one.
///
/// Each step calls either `propose` or `skip`, once. So a drafter sees the prompt's features, and
/// then those of all committed tokens step by step, also of steps that others drafted; it never
/// takes `last_step` for its own draft without comparing them. DrafterGroup keeps this for drafters
/// of which one proposes at a time.
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual Needs needs() const { return {}; }
  /// Refuses a target that this drafter cannot work with: throws ConfigError with the reason.
  virtual void check(const LanguageModel& target) const { (void)target; }
  /// A new request begins.
  virtual void reset() {}
  /// Forgets the texts of all requests: those of a drafter that keeps some through `reset`.
  virtual void forget() {}
  /// The next step has no proposal of this drafter (context.max_tokens is 0): no room is left,
  /// drafting does not pay, or another drafter proposes. Only a drafter that collects the features
  /// of every step has work here; others catch up with `committed` in their next propose.
  virtual void skip(const DraftContext& context) { (void)context; }
  /// A draft whose root is context.committed.back(); the drafter brings its own cache in line with
  /// `committed` first. A draft of one node proposes nothing: the step is then a plain one. What is
  /// drawn is drawn by context.random, and nothing else decides but the text and what was seen
  /// since `reset`.
  virtual Draft propose(const DraftContext& context) = 0;
  /// True when it reads the target's logits also at nodes that cannot be accepted; then tokens that
  /// a grammar forbids stay in its drafts.
  virtual bool reads_rejected() const { return false; }
  /// True when it has to draw from its distributions while the target samples, whatever the shape.
  virtual bool draws() const { return false; }
};

}  // namespace specdec
