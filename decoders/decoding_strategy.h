#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device_sampler.h"
#include "core/randomness.h"
#include "core/read_backs.h"
#include "core/sampling.h"
#include "core/tokenizers/tokenizer.h"
#include "core/types.h"
#include "decoders/draft_trace.h"

namespace specdec {

class CompiledGrammar;
class PrefixStore;

enum class StopReason {
  kEndOfSequence,
  kStopId,
  kStopString,
  kGrammarEnd,  ///< the grammar allows nothing more; no end-of-sequence token is spent on it
  kMaxNewTokens,
  kContextFull,
  kGrammarLimit,  ///< a limit of the grammar was reached: what may come next is not known
  kNoneAccepted   ///< no sample of a corrected generation was accepted; the output is empty
};
/// "end_of_sequence", "stop_id", "stop_string", "grammar_end", "max_new_tokens", "context_full",
/// "grammar_limit", "none_accepted"
std::string_view stop_reason_name(StopReason reason);
/// True when an output under a grammar is a whole text of its language.
bool ends_text(StopReason reason);

/// Rule by which a generation ends.
struct StopRule {
  int64_t max_new_tokens = 128;
  std::vector<Token> end_ids = {};   ///< end-of-sequence ids of the model (a list)
  std::vector<Token> stop_ids = {};  ///< further ids given by the user
  /// Strings that are found in the bytes of the output, across token borders.
  std::vector<std::string> stop_strings = {};

  /// Reason for which a generation ends with this token whatever came before it; nothing when it
  /// does not.
  std::optional<StopReason> reason(Token token) const;
};

/// A grammar that the output obeys: tokens that it forbids have no mass in the target's
/// distribution, at every node of a draft from that node's own place. Speculation stays lossless:
/// its output has the distribution of constrained decoding alone.
struct Constraint {
  std::shared_ptr<const CompiledGrammar> grammar;  ///< nullptr: none
  /// Drafters draw from their masked distributions, and tokens found deterministically that the
  /// grammar forbids are not verified. Else such drafts are kept, and rejected by the target's
  /// distribution.
  bool mask_drafts = true;
  /// What the grammar forces is drafted before anything else: tokens that are the only ones of
  /// their masks, then bytes that can be cut in several ways, as the tokenizer cuts them.
  bool forced = true;
};

/// Weights on the target's distributions that depend on the output so far: a rule on tokens of
/// one's own (no n-gram twice), or a distribution other than a grammar's locally masked one. A
/// strategy that wraps another hands them on in its request (docs/extend.md). Speculation keeps the
/// weighed distribution, whatever a drafter proposes.
class DistributionWeights {
 public:
  virtual ~DistributionWeights() = default;
  /// Multiplies the distribution of the token after `output`, [vocab], by weights that are not
  /// negative; 0 forbids a token. Need not normalise. At temperature 0 the tokens that are allowed
  /// have 1 each, and the largest logit plus log-weight is the best. Decides by `output` alone,
  /// and by which tokens have any mass: it is called in any order, and for drafted tokens that
  /// come to be rejected, but for no output that it forbids itself. An output after which it leaves
  /// no token any mass is an Error, whoever asks for it.
  virtual void weigh(TokenSpan output, std::span<double> distribution) const = 0;
};

/// One prompt to be continued. Borrowed parts outlive generate().
struct Request {
  TokenSpan prompt;
  SamplingParams sampling;
  StopRule stop;
  Randomness& random;
  const Tokenizer* tokenizer = nullptr;  ///< needed when there are stop strings
  /// Callback with the tokens that each step commits, for streaming.
  std::function<void(TokenSpan)> on_tokens = {};
  bool log_overlaps = false;  ///< fill StepStatistics::overlaps
  bool log_rejected = false;  ///< fill StepStatistics::rejected
  Constraint constraint = {};
  /// Weights of the target's distributions; greedy decoding takes the best token by them. Beam
  /// search takes none. nullptr: none.
  const DistributionWeights* weights = nullptr;
  /// Output so far of a generation that goes on: it stands after the prompt, counts as output for
  /// grammar, stop rule and max_new_tokens, and is not given again. Beam search and corrected
  /// decoding take none.
  TokenSpan resumed = {};
  /// Where the target's keys and values of earlier texts are; nullptr: the prompt is read whole.
  /// Texts whose prompt is given by one of the next two are neither looked for nor remembered.
  PrefixStore* prefixes = nullptr;
  /// Embeddings [n, hidden] that the target reads instead of the prompt's tokens, scaled (see
  /// Internals::embed). `prompt` has a token for each: what drafters, the repetition penalty and
  /// layers with inputs of their own read there. Beam search takes none.
  at::Tensor embeddings = {};
  /// Logits [vocab] after the prompt, which row 0 of the target keeps already, by the caller: it is
  /// not read again. Not with embeddings or `resumed`; drafters that need features of the prompt,
  /// beam search and corrected decoding take none.
  at::Tensor prompt_logits = {};
  /// The target reads the prompt with ForwardOptions::library_products. Not with `resumed`,
  /// `prefixes` or `prompt_logits`, nor by beam search.
  bool library_products = false;
};

/// Amount that a grammar leaves open at a node.
enum class Freedom {
  kFree,         ///< no grammar, or more than half of the vocabulary is allowed
  kConstrained,  ///< less, but several tokens
  kForced,       ///< one token
};

/// Counts of the drafted tokens after nodes of one Freedom.
struct DraftCounts {
  int64_t drafted = 0;
  int64_t accepted = 0;
  bool operator==(const DraftCounts&) const = default;
};

/// Raw counts of one target forward after the prefill; every metric is derived from these.
struct StepStatistics {
  /// Proposed tokens that the target verified. When the text ends at an accepted one, those that
  /// are deeper stand where there is no text: they count neither here nor as accepted.
  int64_t drafted = 0;
  int64_t accepted = 0;   ///< drafted tokens that the verifier accepted
  int64_t committed = 0;  ///< tokens added to the output: accepted + 1, or accepted when the text
                          ///< ends at an accepted token
  int64_t depth = 0;      ///< deepest token that counts as drafted; `drafted` for a chain
  double draft_seconds = 0.0;
  /// Part of draft_seconds: reading the prompt into the drafter's cache, which the request's first
  /// draft waits for.
  double prompt_draft_seconds = 0.0;
  double verify_seconds = 0.0;  ///< the target's forward
  double other_seconds = 0.0;   ///< distributions, verification, cache bookkeeping, stops
  /// Overlaps, when Request::log_overlaps: of each node with children, in order, the exact
  /// probability that the verifier `rejection` accepts the first drawn child, or one of those found
  /// deterministically (see draft_overlaps). Of a chain: one a drafted token.
  std::vector<double> overlaps = {};
  /// Branches of the draft after the last accepted token, when Request::log_rejected: each a
  /// child of it, that one's first child, and so on. Of a chain: one, with all rejected tokens.
  /// Empty where nothing was rejected there, or the text ended before.
  std::vector<std::vector<Token>> rejected = {};
  /// Drafted and accepted tokens under a grammar, by the Freedom where they stand; else zero.
  std::array<DraftCounts, 3> by_freedom = {};
  /// Part of draft_seconds and other_seconds: the grammar's masks of drafts, verified nodes and
  /// beams, and finding the tokens that it forces.
  double mask_seconds = 0.0;
  /// Copies to the host of what the target's forward and the decision about the draft came to; none
  /// of a CPU's.
  ReadBacks read_backs = {};
  /// Copies to the host of the drafter's models, whose waiting is part of draft_seconds.
  ReadBacks draft_read_backs = {};
};

/// One way in which a beam search continues the prompt.
struct Hypothesis {
  std::vector<Token> tokens;  ///< prompt and output; an end-of-sequence or stop id is the last
  double score = 0.0;         ///< log-probability of the output / its length ^ length_penalty
};

struct Generation {
  std::vector<Token> tokens;  ///< new ones; a stop id, or the token that completed a stop string,
                              ///< is the last of them
  StopReason stop_reason = StopReason::kMaxNewTokens;
  double prefill_seconds = 0.0;  ///< to the first token, which the prefill yields
  double decode_seconds = 0.0;   ///< all steps
  std::vector<StepStatistics> steps;
  /// Gap of each token when greedy: best minus second best of the processed logits it was taken
  /// from.
  std::vector<double> gaps;
  /// log Z of each token under a grammar: the logarithm of the mass that the grammar's mask left
  /// of the target's distribution (see log_masses). Their sum is the log-probability that plain
  /// sampling would have stayed in the grammar along this output.
  std::vector<double> log_allowed;
  /// Log-probability of each token of an output under a grammar, by the target's distribution
  /// without the grammar.
  std::vector<double> log_probs;
  /// Tokens under a canonical grammar whose mask was a fallback (see CanonicalMasks). With none
  /// the output is its text's own encoding, or the beginning of one.
  int64_t mask_fallbacks = 0;
  int64_t samples = 1;  ///< outputs that were drawn for this one (see CorrectedDecoding)
  /// Hypotheses of a beam search, best first; `tokens` are those of the first.
  std::vector<Hypothesis> hypotheses;
};

/// A way of decoding.
class DecodingStrategy {
 public:
  virtual ~DecodingStrategy() = default;
  /// Continues the prompt. Throws Error when it is empty or too long for the model, and ConfigError
  /// for parts of the request that the strategy or the target cannot do.
  virtual Generation generate(const Request& request) = 0;
  /// Whether the strategy takes Request::resumed, and what the target keeps in row 0 after
  /// generate(), or an exception of on_tokens, is the text's beginning.
  virtual bool can_resume() const { return false; }
  /// Forgets the texts of all requests, where drafters keep some (Drafter::forget).
  virtual void forget() {}
  /// What the strategy's drafter would propose at every position of `output`, a continuation of the
  /// request's prompt that the target has drawn (by any lossless strategy); nullopt: it has no
  /// drafter to trace. Decides nothing at random. Throws ConfigError for a drafter that cannot be
  /// traced.
  virtual std::optional<DraftTrace> trace(const Request& request, TokenSpan output,
                                          const TraceOptions& options);
};

}  // namespace specdec
