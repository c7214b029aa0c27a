#include "core/uncached_model.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

/// Results of single nodes, which become those of a forward.
struct NodeResults {
  std::vector<Tensor> logits, hidden;
  std::vector<std::vector<Tensor>> captured;

  void add(const ForwardResult& result, bool with_logits) {
    if (with_logits) {
      logits.push_back(result.logits.select(0, -1));
    }
    if (result.final_hidden.defined()) {
      hidden.push_back(result.final_hidden.select(0, -1));
    }
    captured.resize(result.captured.size());
    for (size_t layer = 0; layer < captured.size(); ++layer) {
      captured[layer].push_back(result.captured[layer].select(0, -1));
    }
  }

  ForwardResult stack() const {
    const auto stacked = [](const std::vector<Tensor>& rows) {
      return rows.empty() ? Tensor() : at::stack(rows);
    };
    ForwardResult all{.logits = stacked(logits), .final_hidden = stacked(hidden), .captured = {}};
    for (const std::vector<Tensor>& layer : captured) {
      all.captured.push_back(stacked(layer));
    }
    return all;
  }
};

}  // namespace

std::vector<UncachedModel::Place> UncachedModel::append(const TokenBatch& batch,
                                                        NamedRows<Row>& rows) {
  const Tensor tokens = batch.tokens.cpu().contiguous();
  const auto size = static_cast<size_t>(tokens.numel());
  SPECDEC_CHECK(size > 0, "a forward of no tokens");
  SPECDEC_CHECK(batch.rows.empty() || batch.rows.size() == size, "rows of another size");
  SPECDEC_CHECK(batch.parents.empty() || batch.parents.size() == size, "parents of another size");
  std::vector<Place> places;
  for (size_t i = 0; i < size; ++i) {
    const RowId row = batch.rows.empty() ? 0 : batch.rows[i];
    const int64_t node = std::ssize(rows[row].pending);
    const int64_t parent = batch.parents.empty() ? node - 1 : batch.parents[i];
    SPECDEC_CHECK(parent >= -1 && parent < node, "node {} has no parent {}", node, parent);
    rows[row].pending.push_back({tokens.const_data_ptr<Token>()[i], parent});
    places.push_back({row, node});
  }
  return places;
}

std::vector<Token> UncachedModel::history(const Row& row, int64_t node) {
  std::vector<Token> path;
  for (; node >= 0; node = row.pending[static_cast<size_t>(node)].parent) {
    path.push_back(row.pending[static_cast<size_t>(node)].token);
  }
  std::vector<Token> history = row.kept;
  history.insert(history.end(), path.rbegin(), path.rend());
  return history;
}

ForwardResult UncachedModel::forward(const TokenBatch& batch, const ForwardOptions& options) {
  SPECDEC_CHECK(options.layers.empty() && !batch.inputs.embeddings.defined() &&
                    !batch.inputs.attention_bias.defined(),
                "an uncached model runs all layers on tokens alone");
  NamedRows<Row> rows = rows_;  // changed only when all is well
  const std::vector<Place> places = append(batch, rows);
  const bool all_states = options.hidden == Hidden::kAll || !options.capture_layers.empty();
  NodeResults results;
  for (size_t i = 0; i < places.size(); ++i) {
    const bool is_last = i + 1 == places.size() || places[i + 1].row != places[i].row;
    const bool has_logits =
        options.logits == Logits::kAll || (options.logits == Logits::kLast && is_last);
    if (!has_logits && !all_states) {
      continue;
    }
    const ForwardOptions own = {
        .capture_layers = options.capture_layers,
        .logits = Logits::kLast,
        .hidden = options.hidden == Hidden::kNone ? Hidden::kNone : Hidden::kScored,
        .draft_columns = options.draft_columns};
    results.add(model_.prefill(history(rows[places[i].row], places[i].node), own), has_logits);
  }
  rows_ = std::move(rows);
  return results.stack();
}

void UncachedModel::commit(std::span<const int64_t> path, RowId row) {
  Row& changed = rows_[row];
  int64_t previous = -1;
  for (const int64_t node : path) {
    SPECDEC_CHECK(node >= 0 && node < std::ssize(changed.pending) &&
                      changed.pending[static_cast<size_t>(node)].parent == previous,
                  "node {} does not follow node {}", node, previous);
    previous = node;
  }
  changed.kept = history(changed, previous);
  changed.pending.clear();
}

void UncachedModel::truncate(int64_t length, RowId row) {
  SPECDEC_CHECK(length >= 0 && length <= this->length(row), "cannot truncate {} tokens to {}",
                this->length(row), length);
  rows_[row].kept.resize(static_cast<size_t>(length));
  rows_[row].pending.clear();
}

RowId UncachedModel::fork(RowId row, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= this->length(row), "cannot fork {} of {} tokens", length,
                this->length(row));
  const std::vector<Token>& kept = rows_[row].kept;
  return rows_.open({.kept = {kept.begin(), kept.begin() + length}});
}

}  // namespace specdec
