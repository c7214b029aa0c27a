#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/language_model.h"
#include "decoders/analysis/sequence_distribution.h"
#include "decoders/drafters/distribution_drafter.h"
#include "experiments/certify/replay_rows.h"

namespace specdec {

struct ReplayTableOptions {
  uint64_t seed = 1;
  int64_t entries = 4;  ///< tokens that may follow a prefix, at most
  int64_t drafted = 0;  ///< of them, those that the drafter may propose; 0 = all
  int64_t vocab = 0;    ///< over which they are spread evenly; 0 = as many as entries
};

/// A small target and a small drafter that are made of recorded rows. Prefixes are numbered in the
/// order of their length, then of their tokens, and take the rows in turn, in an order that the
/// seed shuffles; when all rows are taken, they are taken again with their entries shifted by one.
/// So no two prefixes share their distributions before places() of them have some. The first new
/// token is certain.
class ReplayTables {
 public:
  /// `rows` are not empty.
  ReplayTables(const std::vector<ReplayRow>& rows, const ReplayTableOptions& options);

  int64_t vocab() const { return options_.vocab; }
  std::vector<Token> prompt() const { return {name(0)}; }
  /// Distributions that prefixes may have: rows times orders of their entries.
  int64_t places() const { return std::ssize(rows_) * options_.entries; }
  /// Number, below places(), of the distributions that a prefix has.
  int64_t place(TokenSpan history) const;
  /// Logits after a history, [vocab]: logarithms of the row's p or q.
  std::vector<double> target_logits(TokenSpan history) const;
  std::vector<double> draft_logits(TokenSpan history) const;

 private:
  Token name(int64_t entry) const;
  std::vector<double> logits(TokenSpan history, std::vector<double> ReplayRow::*probs) const;

  std::vector<ReplayRow> rows_;  // of so many entries, shuffled
  ReplayTableOptions options_;
};

/// How large a draft is.
struct DraftSize {
  int64_t nodes = 0;  ///< beside the root
  int64_t depth = 0;
  int64_t branches = 0;                                ///< most children of a node
  auto operator<=>(const DraftSize&) const = default;  // NOLINT(modernize-use-nullptr)
};
/// The larger of each.
DraftSize larger(const DraftSize& a, const DraftSize& b);

/// The small target: one row of float64 logits from the tables.
class TableModel final : public LanguageModel {
 public:
  /// Borrows the tables.
  explicit TableModel(const ReplayTables& tables) : tables_(tables) {}
  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override;
  void commit(std::span<const int64_t> path, RowId row = 0) override;
  void truncate(int64_t length, RowId row = 0) override;
  RowId open() override;
  RowId fork(RowId row, int64_t length) override;
  void close(RowId row) override;
  int64_t length(RowId row = 0) const override;
  int64_t pending(RowId row = 0) const override;
  int64_t vocab_size() const override { return tables_.vocab(); }
  int64_t max_length() const override { return 1024; }

  /// The largest draft that it has verified.
  const DraftSize& largest() const { return largest_; }
  /// Prefixes whose distributions were asked for.
  int64_t prefixes() const { return std::ssize(logits_); }
  /// Prefixes that have the distributions of another.
  int64_t sharing() const;

 private:
  const std::vector<double>& logits_after(const std::vector<Token>& history);
  void note_size(int64_t first);

  const ReplayTables& tables_;
  std::vector<Token> kept_;
  std::vector<Token> pending_;
  std::vector<int64_t> parents_;
  DraftSize largest_;
  std::map<std::vector<Token>, std::vector<double>> logits_;  // remembered
};

/// The small drafter, whose drafts the strategy's own shape grows.
class TableDrafter final : public DistributionDrafter {
 public:
  struct Options {
    bool drawn = true;       ///< draws wherever the shape allows it
    int64_t max_depth = 64;  ///< of what it drafts
  };
  /// Borrows the tables.
  TableDrafter(const ReplayTables& tables, const Options& options);

 private:
  std::optional<DraftRoom> begin_draft(const DraftContext& context) override;
  Tensor expand(const Draft& partial, std::span<const int64_t> frontier) override;

  const ReplayTables& tables_;
  int64_t max_depth_;
  TokenSpan committed_;  // of the draft in progress
};

}  // namespace specdec
