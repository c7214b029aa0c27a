#include "experiments/certify/replay_tables.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/randomness.h"

namespace specdec {
namespace {

/// Puts rows in an order that depends on the seed (Fisher and Yates).
void shuffle(std::vector<ReplayRow>& rows, uint64_t seed) {
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32U)};
  for (size_t last = rows.size() - 1; last > 0; --last) {
    const auto drawn = philox4x32({static_cast<uint32_t>(last)}, key);
    std::swap(rows[last], rows[drawn[0] % (last + 1)]);
  }
}

/// Lets a drafter propose fewer tokens: the last of them takes what the others had.
void narrow(std::vector<double>& probs, int64_t tokens) {
  const auto first = probs.begin() + std::min<int64_t>(tokens, std::ssize(probs)) - 1;
  *first = std::accumulate(first, probs.end(), 0.0);
  std::fill(first + 1, probs.end(), 0.0);
}

void copy_row(Tensor& matrix, int64_t row, const std::vector<double>& values) {
  std::copy(values.begin(), values.end(), matrix.data_ptr<double>() + row * matrix.size(1));
}

}  // namespace

ReplayTables::ReplayTables(const std::vector<ReplayRow>& rows, const ReplayTableOptions& options)
    : options_(options) {
  options_.vocab = options.vocab == 0 ? options.entries : options.vocab;
  SPECDEC_CHECK(!rows.empty(), "tables are made of rows");
  SPECDEC_CHECK(options.entries > 0 && options_.vocab >= options.entries,
                "a vocabulary of {} for {} entries", options_.vocab, options.entries);
  for (const auto& row : rows) {
    rows_.push_back(lump_row(row, options.entries));
    if (options.drafted > 0) {
      narrow(rows_.back().q, options.drafted);
    }
  }
  shuffle(rows_, options.seed);
}

int64_t ReplayTables::place(TokenSpan history) const {
  const int64_t step = options_.vocab / options_.entries;
  uint64_t number = 0;  // bijective numeration: by length, then by the entries
  for (size_t i = 2; i < history.size(); ++i) {
    const auto entry = static_cast<uint64_t>(history[i] / step);
    number = number * static_cast<uint64_t>(options_.entries) + entry + 1;
  }
  return static_cast<int64_t>(number % static_cast<uint64_t>(places()));
}

Token ReplayTables::name(int64_t entry) const {
  return static_cast<Token>(entry * (options_.vocab / options_.entries));
}

std::vector<double> ReplayTables::target_logits(TokenSpan history) const {
  if (history.size() > 1) {
    return logits(history, &ReplayRow::p);
  }
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  std::vector<double> certain(static_cast<size_t>(vocab()), kNever);
  certain[static_cast<size_t>(name(0))] = 0.0;
  return certain;
}

std::vector<double> ReplayTables::draft_logits(TokenSpan history) const {
  return logits(history, &ReplayRow::q);
}

std::vector<double> ReplayTables::logits(TokenSpan history,
                                         std::vector<double> ReplayRow::*probs) const {
  const int64_t taken = place(history);
  const auto number = taken % std::ssize(rows_);
  const ReplayRow& row = rows_[static_cast<size_t>(number)];
  // neighbours begin at different entries, so that the likeliest token is not the same everywhere
  const int64_t turn = (number + taken / std::ssize(rows_)) % options_.entries;
  std::vector<double> all(static_cast<size_t>(vocab()), -std::numeric_limits<double>::infinity());
  int64_t entry = turn;
  for (const double probability : row.*probs) {
    all[static_cast<size_t>(name(entry))] = std::log(probability);
    entry = (entry + 1) % options_.entries;
  }
  return all;
}

DraftSize larger(const DraftSize& a, const DraftSize& b) {
  return {std::max(a.nodes, b.nodes), std::max(a.depth, b.depth), std::max(a.branches, b.branches)};
}

ForwardResult TableModel::forward(const TokenBatch& batch, const ForwardOptions& options) {
  const Tensor tokens = batch.tokens.contiguous();
  const int64_t size = tokens.numel();
  const bool last = options.logits == Logits::kLast;
  Tensor logits = at::empty({last ? 1 : size, vocab_size()}, at::kDouble);
  const int64_t first = std::ssize(pending_);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t node = first + i;
    const int64_t parent = batch.parents.empty() ? node - 1 : batch.parents[static_cast<size_t>(i)];
    SPECDEC_CHECK(parent >= -1 && parent < node, "node {} has no parent {}", node, parent);
    pending_.push_back(tokens.data_ptr<int32_t>()[i]);
    parents_.push_back(parent);
    if (last && i + 1 < size) {
      continue;
    }
    std::vector<Token> history;
    for (int64_t at = node; at >= 0; at = parents_[static_cast<size_t>(at)]) {
      history.push_back(pending_[static_cast<size_t>(at)]);
    }
    history.insert(history.end(), kept_.rbegin(), kept_.rend());
    std::reverse(history.begin(), history.end());
    copy_row(logits, last ? 0 : i, logits_after(history));
  }
  if (!kept_.empty()) {
    note_size(first);
  }
  return {.logits = logits};
}

const std::vector<double>& TableModel::logits_after(const std::vector<Token>& history) {
  const auto [found, is_new] = logits_.try_emplace(history);
  if (is_new) {
    found->second = tables_.target_logits(history);
  }
  return found->second;
}

int64_t TableModel::sharing() const {
  std::set<int64_t> places;
  for (const auto& [history, logits] : logits_) {
    places.insert(tables_.place(history));
  }
  return prefixes() - std::ssize(places);
}

void TableModel::note_size(int64_t first) {
  DraftSize size{.nodes = std::ssize(pending_) - first - 1};
  std::vector<int64_t> depths(pending_.size(), 0);
  std::vector<int64_t> children(pending_.size(), 0);
  for (size_t node = static_cast<size_t>(first) + 1; node < pending_.size(); ++node) {
    const auto parent = static_cast<size_t>(std::max<int64_t>(0, parents_[node]));
    depths[node] = depths[parent] + 1;
    size.depth = std::max(size.depth, depths[node]);
    size.branches = std::max(size.branches, ++children[parent]);
  }
  largest_ = larger(largest_, size);
}

void TableModel::commit(std::span<const int64_t> path, RowId row) {
  SPECDEC_CHECK(row == 0, "a table has one row, not row {}", row);
  int64_t parent = -1;
  for (const int64_t node : path) {
    SPECDEC_CHECK(
        node >= 0 && node < std::ssize(pending_) && parents_[static_cast<size_t>(node)] == parent,
        "node {} does not continue the path", node);
    kept_.push_back(pending_[static_cast<size_t>(node)]);
    parent = node;
  }
  pending_.clear();
  parents_.clear();
}

void TableModel::truncate(int64_t length, RowId row) {
  SPECDEC_CHECK(row == 0 && length >= 0 && length <= std::ssize(kept_),
                "{} tokens of row {} cannot be kept", length, row);
  kept_.resize(static_cast<size_t>(length));
  pending_.clear();
  parents_.clear();
}

RowId TableModel::open() { throw InternalError("a table has one row"); }
RowId TableModel::fork(RowId /*row*/, int64_t /*length*/) { return open(); }
void TableModel::close(RowId row) { SPECDEC_CHECK(false, "row {} cannot be closed", row); }

int64_t TableModel::length(RowId row) const { return row == 0 ? std::ssize(kept_) : 0; }
int64_t TableModel::pending(RowId row) const { return row == 0 ? std::ssize(pending_) : 0; }

TableDrafter::TableDrafter(const ReplayTables& tables, const Options& options)
    : DistributionDrafter(options.drawn ? std::nullopt : std::optional(false)),
      tables_(tables),
      max_depth_(options.max_depth) {}

std::optional<DraftRoom> TableDrafter::begin_draft(const DraftContext& context) {
  committed_ = context.committed;
  return DraftRoom{.depth = max_depth_};
}

Tensor TableDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  Tensor logits = at::empty({std::ssize(frontier), tables_.vocab()}, at::kDouble);
  int64_t row = 0;
  for (const int64_t node : frontier) {
    copy_row(logits, row++, tables_.draft_logits(partial.history(committed_, node)));
  }
  return logits;
}

}  // namespace specdec
