#pragma once
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/draft.h"
#include "core/drawn_chain.h"
#include "core/drawn_tree.h"
#include "core/forward.h"
#include "core/kernels/kv_view.h"
#include "core/kv_snapshot.h"
#include "core/types.h"

namespace specdec {

class DraftVocabulary;

/// What heads that live on a model need (EAGLE, MTP, Medusa).
class Internals {
 public:
  virtual ~Internals() = default;
  virtual int64_t hidden_size() const = 0;
  virtual int64_t num_layers() const = 0;
  /// Input embeddings as the first layer sees them (scaled): [n] int32 -> [n, hidden].
  virtual Tensor embed(const Tensor& tokens) const = 0;
  /// Whether layers look up inputs of their own for each token (Gemma 3n, 4 E), which embeddings
  /// do not replace.
  virtual bool embeds_by_layer() const { return false; }
  /// Final-normed hidden states to logits, soft cap included: [n, hidden] -> [n, vocab].
  virtual Tensor head(const Tensor& hidden) const = 0;
  /// Kept keys and values of a layer, normed and roped: each [kv_heads, tokens, head_dim], of all
  /// or some.
  virtual std::pair<Tensor, Tensor> key_values(int64_t layer, RowId row,
                                               TokenRange tokens = {}) const = 0;
  /// Kept keys and values of a layer without a copy, for query-only layers: KvStore::view with the
  /// tables of KvStore::readers, which have to outlive it.
  virtual KvView read_keys(int64_t layer, const BatchTables& readers) const = 0;
  virtual BatchTables readers(RowId row, int64_t nodes, int64_t angle) const = 0;
  /// Whether ops that read these keys may be recorded as a graph (Ops::record): the two calls above
  /// then say where keys and tables lie, and what the graph reads later is there.
  virtual bool keys_may_be_recorded() const { return false; }
  /// Kept tokens of a row.
  virtual int64_t kept_length(RowId row) const = 0;
};

/// A model, as far as strategies know it. Two invariants: length(row) counts the tokens kept in the
/// cache (between steps that is every committed token except the newest one); nodes evaluated since
/// the last commit are pending: visible to their descendants, forgotten by commit and truncate.
///
/// A model holds several sequences, its rows, of which one forward may evaluate nodes together; the
/// bits of a node depend on its own row alone. Row 0 is there from the beginning and stays. Others
/// are opened or forked, and closed (OpenRow does); a RowView makes a LanguageModel of one.
///
/// A token outside the vocabulary and a sequence longer than max_length() throw Error; calls out of
/// order (a row that is not open, a parent that does not exist, commit of nodes that are not a
/// path, truncate to more than length) throw InternalError and change nothing.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  LanguageModel() = default;
  LanguageModel(const LanguageModel&) = delete;
  LanguageModel& operator=(const LanguageModel&) = delete;

  /// Position of a token = kept length of its row + its depth among pending nodes. A node sees the
  /// kept tokens and its pending ancestors, within each layer's window, measured in positions.
  virtual ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) = 0;
  /// Keeps the pending nodes on `path` (root first), forgets the row's others.
  virtual void commit(std::span<const int64_t> path, RowId row = 0) = 0;
  /// Forgets pending nodes and the kept tokens from `length` on. Moves no data. Throws Error, and
  /// changes nothing, for a length that the row is not rewindable to.
  virtual void truncate(int64_t length, RowId row = 0) = 0;
  /// The largest length, at most `length`, that truncate() and fork() take, from which the text has
  /// to be read anew: `length` itself, but 0 for a cache that gives back what windows have left
  /// behind (window_slack) and has no longer what the next token would see, and the nearest
  /// checkpoint at or below it for recurrent layers.
  virtual int64_t rewindable_to(int64_t length, RowId row = 0) const {
    (void)row;
    return length;
  }
  /// A new, empty row. Throws Error where the model holds no more.
  virtual RowId open() = 0;
  /// A new row that begins with the first `length` kept tokens of another (beam search, branching),
  /// whose pending nodes stay its own. Shares pages, copies on write. Throws Error as open() does.
  virtual RowId fork(RowId row, int64_t length) = 0;
  /// Whether draw_chain and draw_tree draft, and forwards leave logits on a device that samples
  /// (LogitsUse::kSampler) and take tokens from there.
  virtual bool draws_drafts() const { return false; }
  /// Evaluates the tokens `fed`, at least one, with their `inputs` as a chain after the kept ones
  /// of a row that has no pending nodes; then drafts a chain behind them on the device, each token
  /// from the logits after those before, and reads it back at once. A head feeds each drafted token
  /// with its own feature of the token before. Pending afterwards: `fed`, and all drafted tokens
  /// but the last. Of the options, `layers`, `draft_adapters` and `kv_read` hold for all of these.
  /// Nothing is drafted, nor pending, where the logits are damaged, which forward() shows.
  /// InternalError where draws_drafts() is false.
  virtual std::optional<DrawnChain> draw_chain(TokenSpan fed, const ChainRequest& chain,
                                               const ForwardOptions& options = {},
                                               const ForwardInputs& inputs = {}, RowId row = 0);
  /// Evaluates `fed` and drafts a tree as draw_chain does a chain. The tree's root is the last
  /// token of `fed`; each level is found by the logits after the nodes before it that have
  /// children. A head feeds each node with its own feature of the node's parent. Pending
  /// afterwards: `fed`, and behind them, level by level, the nodes with children beside the root,
  /// also those that are not there; token 0 stands for them.
  virtual std::optional<DrawnTree> draw_tree(TokenSpan fed, const TreeRequest& tree,
                                             const ForwardOptions& options = {},
                                             const ForwardInputs& inputs = {}, RowId row = 0);
  /// Ends a row other than 0, which nobody may name any more.
  virtual void close(RowId row) = 0;
  /// Kept tokens of a row.
  virtual int64_t length(RowId row = 0) const = 0;
  /// Pending nodes of a row.
  virtual int64_t pending(RowId row = 0) const = 0;

  virtual int64_t vocab_size() const = 0;
  /// The tokens that a head has logits of, when these are not all; else nullptr.
  virtual const DraftVocabulary* draft_vocabulary() const { return nullptr; }
  /// Most tokens that a row may hold, kept and pending together.
  virtual int64_t max_length() const = 0;
  /// Embeddings, head, keys and values; nullptr: drafters that need internals are refused, saying
  /// why.
  virtual const Internals* internals() const { return nullptr; }
  /// Keys and values of rows, to be kept apart from them; nullptr: every text is read anew.
  virtual KvSnapshots* snapshots() { return nullptr; }

  // The primitives by their names in the field, thin and non-virtual. All run on row 0 except
  // decode_get_logits. They check before they change anything: a token outside the vocabulary, an
  // empty prompt and a sequence longer than max_length() throw Error; calls out of order throw
  // InternalError.

  /// New sequence: forgets what row 0 holds, feeds the prompt and keeps it; [vocab].
  Tensor prefill_get_last_logits(TokenSpan prompt);
  /// Appends and keeps; [vocab]. The tokens must not be empty, nor pending nodes be left.
  Tensor extend_get_last_logits(TokenSpan tokens);
  /// One token for each of `rows`, kept; [rows, vocab]. Each must hold something already. One
  /// token without rows goes to row 0.
  Tensor decode_get_logits(TokenSpan tokens, std::span<const RowId> rows = {});
  /// Logits [n, vocab] after all nodes of a draft tree, which are pending until commit.
  Tensor verify_get_logits(const Draft& draft);

  // Calls that return everything that the forward gives, for drafters that live on the target.

  /// Prefills as prefill_get_last_logits does: logits [1, vocab] of the last token (none for
  /// Logits::kNone), and what else is asked for: final_hidden (Hidden::kScored: of the last token)
  /// and captured of the whole prompt. `inputs` have a row for each token.
  ForwardResult prefill(TokenSpan prompt, const ForwardOptions& options,
                        const ForwardInputs& inputs = {});
  /// Prefills from embeddings [n, hidden] without tokens, as Internals::embed gives them (scaled):
  /// a soft prompt, features of an image. Throws Error, before anything changes, for none or too
  /// many of them, and for a model that takes none; models whose layers have inputs of each token
  /// (Gemma 3n, 4 E) take tokens beside embeddings: prefill() with ForwardInputs::embeddings.
  ForwardResult prefill_from_embeddings(const Tensor& embeddings,
                                        const ForwardOptions& options = {});
  /// Extends as extend_get_last_logits does, with the same results of the appended tokens.
  ForwardResult extend(TokenSpan tokens, const ForwardOptions& options,
                       const ForwardInputs& inputs = {});
  /// Verifies as verify_get_logits does.
  ForwardResult verify(const Draft& draft, const ForwardOptions& options);

 private:
  /// Feeds and keeps tokens on row 0 in pieces, or inputs.embeddings where there are none, and
  /// joins their results.
  ForwardResult feed(TokenSpan tokens, const ForwardOptions& options, const ForwardInputs& inputs);
  /// Refuses a prompt of so many tokens that the model cannot hold.
  void check_prompt_size(int64_t size) const;
  void check_tokens(TokenSpan tokens, int64_t first_position) const;
  void check_nothing_pending(RowId row, const char* call) const;
};

/// Tokens as a batch holds them: [n] int32.
Tensor token_tensor(TokenSpan tokens);

}  // namespace specdec
