#pragma once
#include "core/block_model.h"
#include "decoders/drafter.h"
#include "tests/support/fake_model.h"

namespace specdec {

struct TreeDrafterOptions {
  int64_t branches = 2;
  bool sample = true;  ///< draw siblings without replacement; else the best ones in order
};

/// Grows a tree level by level, with the distributions of a table: what EAGLE-like drafters do, in
/// small.
class TreeDrafter final : public Drafter {
 public:
  explicit TreeDrafter(LogitTable table, const TreeDrafterOptions& options = {});
  Draft propose(const DraftContext& context) override;

 private:
  LogitTable table_;
  TreeDrafterOptions options_;
};

/// Grows a chain with the distributions of a table in which drawn and chosen tokens take turns, and
/// which ends after a token that is 0: how long it is depends on what was drawn.
class MixedChainDrafter final : public Drafter {
 public:
  explicit MixedChainDrafter(LogitTable table) : table_(std::move(table)) {}
  Draft propose(const DraftContext& context) override;

 private:
  LogitTable table_;
};

/// Proposes given tokens, whatever the context; keeps what it was shown.
class ScriptedDrafter final : public Drafter {
 public:
  struct Shown {
    std::vector<Token> committed;
    int64_t max_tokens = 0;
    bool had_last_step = false;
    StepResult last_step;
    bool had_prompt_result = false;
    ForwardResult prompt_result;
  };

  /// `script` names the next tokens after a sequence; at most max_tokens of them are proposed.
  /// `shown` outlives the drafter; nullptr = nobody looks.
  using Script = std::function<std::vector<Token>(TokenSpan committed)>;
  explicit ScriptedDrafter(Script script, std::vector<Shown>* shown = nullptr, Needs needs = {});
  Needs needs() const override { return needs_; }
  Draft propose(const DraftContext& context) override;

 private:
  Script script_;
  std::vector<Shown>* shown_;
  Needs needs_;
};

/// Drafts blocks of up to three tokens with a table, each slot by itself. Throws for features that
/// are not those of what was committed.
class FakeBlock final : public BlockModel {
 public:
  /// A layer of a FakeModel, whose captured states it is fed.
  static constexpr int64_t kLayer = 1;

  FakeBlock(int64_t vocab, LogitTable table) : vocab_(vocab), table_(std::move(table)) {}
  int64_t vocab_size() const override { return vocab_; }
  int64_t feature_width() const override { return FakeModel::kHidden; }
  int64_t depth() const override { return 3; }
  int64_t length() const override { return length_; }
  void reset() override { length_ = 0; }
  void keep(TokenSpan committed, const Tensor& features) override;
  void evaluate(Token newest, int64_t wanted) override;
  Tensor logits(const Draft& partial, std::span<const int64_t> nodes) override;

 private:
  int64_t vocab_;
  LogitTable table_;
  int64_t length_ = 0;
  Token newest_ = 0;
  int64_t wanted_ = 0;
};

}  // namespace specdec
