#pragma once
#include <map>
#include <memory>
#include <vector>

#include "core/language_model.h"

namespace specdec {

/// A model that keeps the tokens of row 0 when a new sequence begins there, as a prefill does by
/// truncating the row to 0: those that the new one begins
/// with are not evaluated again. For requests that continue one another, as the turns of a chat do.
/// Results are the model's own wherever a token's bits do not depend on what it is evaluated with.
///
/// Where a prefill asks for hidden states or captured layers, the states of kept tokens are kept
/// too, so drafters that live on them see the whole prompt.
class PrefixCachedModel final : public LanguageModel {
 public:
  explicit PrefixCachedModel(std::unique_ptr<LanguageModel> model);

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void commit(std::span<const int64_t> path, RowId row = 0) override;
  void truncate(int64_t length, RowId row = 0) override;
  int64_t rewindable_to(int64_t length, RowId row = 0) const override;
  RowId open() override { return model_->open(); }
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override;
  int64_t length(RowId row = 0) const override;
  int64_t pending(RowId row = 0) const override;
  int64_t vocab_size() const override { return model_->vocab_size(); }
  const DraftVocabulary* draft_vocabulary() const override { return model_->draft_vocabulary(); }
  int64_t max_length() const override { return model_->max_length(); }
  const Internals* internals() const override { return model_->internals(); }

  /// Tokens of the newest sequence that were not evaluated, since an earlier one had them: none of
  /// those that a cache with window_slack had to read anew.
  int64_t reused() const { return reused_; }

 private:
  struct Row {
    std::vector<Token> kept = {};     ///< what the model keeps
    std::vector<Token> pending = {};  ///< its pending nodes
  };
  /// States of tokens: the final hidden state, then each captured layer's.
  using States = std::vector<Tensor>;

  /// True while the sequence that began last is shorter than what the model keeps of earlier ones.
  bool replays() const { return replayed_ >= 0; }
  /// First tokens of a batch that need no forward.
  int64_t count_reusable(const TokenBatch& batch, const ForwardOptions& options) const;
  ForwardResult replay(const TokenBatch& batch, const ForwardOptions& options);
  ForwardResult evaluate(const TokenBatch& batch, const ForwardOptions& options);
  void note_states(const ForwardResult& result, const ForwardOptions& options, int64_t nodes);
  /// Puts the states of kept tokens from `begin` on before those of a result; nothing where the
  /// options do not ask for them.
  void prepend_states(int64_t begin, int64_t count, const ForwardOptions& options,
                      ForwardResult& result) const;
  /// Forgets the pending nodes of row 0.
  void drop_pending();
  /// Begins a new sequence in row 0.
  void begin();
  /// Forgets what the model keeps of row 0 from `length` on; reads the tokens before anew where it
  /// is not rewindable to them.
  void cut(int64_t length);

  std::unique_ptr<LanguageModel> model_;
  std::map<RowId, Row> rows_;  // 0 and those that are open
  int64_t replayed_ = -1;      // length of row 0 while it replays; -1 = it does not
  int64_t skipped_ = 0;  // pending nodes of row 0 that needed no forward, before the model's own
  int64_t reused_ = 0;
  std::vector<int64_t> state_layers_;   // captured layers of `states_`
  std::vector<States> states_;          // of the first kept tokens of row 0
  std::vector<States> pending_states_;  // of its pending nodes, as far as they are known
};

}  // namespace specdec
