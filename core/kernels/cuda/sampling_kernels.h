#pragma once
#include <cstdint>

/// The C interface of the kernels that make distributions of logits and verify drafts by them; see
/// core/kernels/cuda/kernels.h.
namespace specdec::cuda {

/// Entry of RowMasks::of_row: all tokens of the row are allowed.
constexpr int32_t kCudaAllTokens = -2;

/// Tokens that a grammar allows in each row, as TokenMask has them.
struct RowMasks {
  /// [rows] a row's base; -1 = none but the exceptions; kCudaAllTokens. nullptr = all are allowed.
  const int32_t* of_row = nullptr;
  /// [any, words] a bit a token, 32 to a word, the lowest first; those beyond are forbidden.
  const uint32_t* bases = nullptr;
  const int32_t* exception_starts = nullptr;  ///< [rows + 1] those of row r begin at [r]
  const int32_t* exceptions = nullptr;  ///< token t is allowed beside the base; ~t is forbidden
  int32_t words = 0;
};

/// The distributions that tokens are drawn from, by logits: temperature, top-k, top-p and min-p, as
/// token_probs of core/sampling.h. The probabilities of a row that is not valid are undefined.
struct TargetProbsTask {
  const float* logits;  ///< of row r: logits[r * stride ..]
  double* probs;        ///< [count, vocab]
  int64_t stride;       ///< at least vocab, or 0 = all rows are one
  int32_t count, vocab;
  double temperature;  ///< 0 = all the mass on the best token
  int32_t top_k;       ///< 0 = all
  double top_p, min_p;
  RowMasks masks = {};
  /// [count] tokens with mass; 0 = some logit of the row is neither a number nor -inf, or no
  /// allowed one is a number. nullptr = not asked for.
  int32_t* support = nullptr;
};

/// The best allowed token of each row of logits, as greedy_choice of core/sampling.h.
struct BestAllowedTask {
  const float* logits;  ///< of row r: logits[r * stride ..]
  int32_t* tokens;      ///< [count] the lowest id on a tie; -1 = TargetProbsTask::support is 0
  float* largest;       ///< [count, 2] its logit and the second best, -inf where there is no other
  int64_t stride;       ///< at least vocab
  int32_t count, vocab;
  RowMasks masks = {};
};

/// A token of each of some rows, drawn with a choice of CounterRandomness at the row's position.
struct DrawRowsTask {
  const double* probs;       ///< [count, vocab]
  const uint32_t* key;       ///< [2] of the randomness
  const int64_t* positions;  ///< [count]
  int32_t* tokens;           ///< [count]
  uint32_t purpose;          ///< see Purpose of core/randomness.h
  uint32_t choice = 0;       ///< of (position, purpose); the same in all rows
  int32_t count, vocab;
  const int32_t* names = nullptr;  ///< [vocab] tokens of the columns, where `named` is asked for
  int32_t* named = nullptr;        ///< [count] the tokens' names
};

/// Where the children of a level of a drafted tree go; its nodes are numbered as in a TreeRequest.
struct SiblingRows {
  const int32_t* parents;  ///< [rows] the nodes whose children are looked for
  const int32_t*
      first_children;  ///< [rows + 1] the children of row r are nodes from [r] to [r + 1]
  int32_t* tokens;     ///< [nodes] -1 = there is none; those of earlier levels are read
  /// [vocab] tokens of the columns; nullptr = each is its own.
  const int32_t* names = nullptr;
  int32_t rows = 0;
  /// [nodes] place in `fed` of a node that has children, which the next forward evaluates; -1 =
  /// none.
  const int32_t* fed_places = nullptr;
  int32_t* fed = nullptr;  ///< tokens of such nodes, 0 where there is none; nullptr = not asked for
};

/// Children drawn without replacement, in the order of the rows, each with the next choice of
/// CounterRandomness at one position. A row has no more than it has tokens with mass.
struct DrawSiblingsTask {
  const double* probs;      ///< [rows, vocab]
  const int32_t* support;   ///< [rows] TargetProbsTask::support
  const uint32_t* key;      ///< [2] of the randomness
  const int64_t* position;  ///< [1]
  SiblingRows siblings;
  uint32_t purpose;  ///< see Purpose of core/randomness.h
  int32_t most;      ///< children of a row
  int32_t vocab;
};

/// Children that are the best tokens of given ranks, of equal ones the lowest ids first, as
/// TokenProbs::top of core/token_probs.h.
struct BestSiblingsTask {
  const float* logits;  ///< of row r: logits[r * stride ..]
  /// [rows, vocab] tokens without mass are left out; nullptr = they are those of the logits.
  const double* probs = nullptr;
  const int32_t* ranks;  ///< [nodes] from 0, ascending among siblings
  int32_t* valid;        ///< [rows] 1 or 0 = TargetProbsTask::support is 0
  SiblingRows siblings;
  int64_t stride;      ///< as of TargetProbsTask
  double temperature;  ///< above 0; of a mass, where there are no `probs`
  int32_t vocab;
  RowMasks masks = {};
};

/// Masses of the tokens that follow the nodes of a path, as log_masses of core/sampling.h.
struct LogMassesTask {
  const float* logits;  ///< [nodes, stride]
  /// [nodes] the token after each node, -1 = none; nullptr = by tokens, path, accepted and next,
  /// which are read only then.
  const int32_t* chosen = nullptr;
  const int32_t* tokens;    ///< [nodes]
  const int32_t* path;      ///< [nodes] the root first
  const int32_t* accepted;  ///< [1] nodes of the path behind the root
  const int32_t* next;      ///< [1] token after the path
  double* allowed;          ///< [nodes] of each such node, by its place: LogMasses::allowed
  double* token;            ///< [nodes] LogMasses::token
  int64_t stride;           ///< at least vocab
  double temperature;       ///< above 0
  int32_t nodes, vocab;
  RowMasks masks = {};
};

/// Rejection sampling over drafted chains (decoders/verifiers/rejection.h), with the random numbers
/// of CounterRandomness at Purpose::kVerify. Chain c has lengths[c] <= capacity drafted tokens.
struct VerifyChainsTask {
  const double* target;      ///< [chains, capacity + 1, vocab]
  const double* drafted;     ///< [chains, capacity, vocab] what tokens were drawn from; nullptr =
                             ///< all were chosen deterministically
  const int32_t* tokens;     ///< [chains, capacity]
  const int32_t* lengths;    ///< [chains]
  const uint32_t* keys;      ///< [chains, 2] of the randomness
  const int64_t* positions;  ///< [chains] of the token after the root
  int32_t* accepted;         ///< [chains] drafted tokens that stay
  int32_t* next;             ///< [chains] correction or bonus token
  int32_t chains, capacity, vocab;
};

/// Greedy verification: drafted tokens stay as long as each is the target's best.
struct MatchChainsTask {
  const int32_t* best;     ///< [chains, capacity + 1]
  const int32_t* tokens;   ///< [chains, capacity]
  const int32_t* lengths;  ///< [chains]
  int32_t* accepted;       ///< [chains]
  int32_t* next;           ///< [chains]
  int32_t chains, capacity;
};

/// Greedy verification of drafted trees. Node 0 of a tree is its root, and siblings are tried in
/// order.
struct VerifyTreesTask {
  const double* target;       ///< [trees, capacity + 1, vocab] after each node
  const double* drafted;      ///< [any, vocab] what children were drawn from, without replacement
  const int32_t* drawn_from;  ///< [trees, capacity + 1] row of `drafted` for a node's children; -1
                              ///< = they were chosen deterministically
  const int32_t* tokens;      ///< [trees, capacity + 1]; that of a root is not read
  const int32_t* parents;     ///< [trees, capacity + 1] a node before it
  const int32_t* sizes;       ///< [trees] nodes, the root among them
  const uint32_t* keys;       ///< as of chains
  const int64_t* positions;
  double* workspace;  ///< [trees, 2, vocab]
  int32_t* path;      ///< [trees, capacity + 1] nodes that stay, the root first; -1 behind them
  int32_t* accepted;  ///< [trees] drafted tokens that stay
  int32_t* next;      ///< [trees] correction or bonus token
  int32_t trees, capacity, vocab;
};

/// Greedy verification of trees.
struct MatchTreesTask {
  const int32_t* best;  ///< [trees, capacity + 1]
  const int32_t* tokens;
  const int32_t* parents;
  const int32_t* sizes;
  int32_t* path;
  int32_t* accepted;
  int32_t* next;
  int32_t trees, capacity;
};

extern "C" {
int specdec_cuda_target_probs(const TargetProbsTask* task, void* stream);
int specdec_cuda_best_allowed(const BestAllowedTask* task, void* stream);
int specdec_cuda_draw_rows(const DrawRowsTask* task, void* stream);
int specdec_cuda_draw_siblings(const DrawSiblingsTask* task, void* stream);
int specdec_cuda_best_siblings(const BestSiblingsTask* task, void* stream);
int specdec_cuda_log_masses(const LogMassesTask* task, void* stream);
int specdec_cuda_verify_chains(const VerifyChainsTask* task, void* stream);
/// Block verification (decoders/verifiers/block.h) of the same.
int specdec_cuda_verify_blocks(const VerifyChainsTask* task, void* stream);
int specdec_cuda_match_chains(const MatchChainsTask* task, void* stream);
int specdec_cuda_verify_trees(const VerifyTreesTask* task, void* stream);
int specdec_cuda_match_trees(const MatchTreesTask* task, void* stream);
}

}  // namespace specdec::cuda
