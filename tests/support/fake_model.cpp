#include "tests/support/fake_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/error.h"
#include "core/randomness.h"
#include "core/sampling.h"

namespace specdec {
namespace {

/// Two uniforms in (0, 1), fixed by a seed, a history and an index.
std::pair<double, double> uniforms(uint64_t seed, TokenSpan history, uint32_t index) {
  std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32U)};
  for (const Token token : history) {
    const auto block = philox4x32({static_cast<uint32_t>(token), 1, 0, 0}, key);
    key = {block[0], block[1]};
  }
  const auto block = philox4x32({index, 2, 0, 0}, key);
  constexpr double kUnit = 1.0 / 4294967296.0;
  return {(block[0] + 0.5) * kUnit, (block[1] + 0.5) * kUnit};
}

template <class Value>
Tensor to_matrix(const std::vector<std::vector<Value>>& rows, int64_t columns) {
  Tensor matrix = at::empty({static_cast<int64_t>(rows.size()), columns}, at::kDouble);
  auto* out = matrix.data_ptr<double>();
  for (const std::vector<Value>& row : rows) {
    SPECDEC_CHECK(static_cast<int64_t>(row.size()) == columns, "a table gave {} logits for {}",
                  row.size(), columns);
    out = std::copy(row.begin(), row.end(), out);
  }
  return matrix;
}

/// The best token of each row, -1 where there is none.
std::vector<GreedyChoice> best_of_each(const Tensor& logits) {
  std::vector<GreedyChoice> best;
  for (int64_t row = 0; row < logits.size(0); ++row) {
    try {
      best.push_back(greedy_choice(LogitRow::of(logits, row), {}, {}));
    } catch (const Error&) {
      best.push_back({.token = -1});
    }
  }
  return best;
}

}  // namespace

LogitTable random_table(int64_t vocab, uint64_t seed, int64_t context, double spread) {
  return [=](TokenSpan history) {
    const TokenSpan seen = history.last(std::min(history.size(), static_cast<size_t>(context)));
    std::vector<double> logits(static_cast<size_t>(vocab));
    for (size_t i = 0; i < logits.size(); ++i) {
      const auto [a, b] = uniforms(seed, seen, static_cast<uint32_t>(i));
      logits[i] = spread * std::sqrt(-2.0 * std::log(a)) * std::cos(2.0 * std::numbers::pi * b);
    }
    return logits;
  };
}

LogitTable mixed_table(LogitTable a, LogitTable b, double share) {
  return [a = std::move(a), b = std::move(b), share](TokenSpan history) {
    std::vector<double> logits = a(history);
    const std::vector<double> other = b(history);
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = (1.0 - share) * logits[i] + share * other[i];
    }
    return logits;
  };
}

FakeModel::FakeModel(int64_t vocab, LogitTable table, int64_t max_length)
    : vocab_(vocab), table_(std::move(table)), max_length_(max_length) {}

std::vector<double> FakeModel::hidden_state(TokenSpan history, int64_t layer) {
  std::vector<double> state;
  for (uint32_t i = 0; i < kHidden; ++i) {
    state.push_back(uniforms(static_cast<uint64_t>(layer + 1), history, i).first);
  }
  return state;
}

std::vector<FakeModel::Place> FakeModel::append(const TokenBatch& batch) {
  const Tensor tokens = batch.tokens.cpu().contiguous();
  SPECDEC_CHECK(tokens.scalar_type() == at::kInt && tokens.dim() == 1, "tokens are [n] int32");
  const auto size = static_cast<size_t>(tokens.numel());
  SPECDEC_CHECK(size > 0, "a forward of no tokens");
  SPECDEC_CHECK(batch.rows.empty() || batch.rows.size() == size, "rows of another size");
  SPECDEC_CHECK(batch.parents.empty() || batch.parents.size() == size, "parents of another size");
  NamedRows<Row> rows = rows_;  // changed only when all is well
  std::vector<Place> places;
  for (size_t i = 0; i < size; ++i) {
    const Token token = tokens.data_ptr<int32_t>()[i];
    if (token < 0 || token >= vocab_) {
      throw Error(fmt::format("token {} is outside the vocabulary of {}", token, vocab_));
    }
    const RowId at_row = batch.rows.empty() ? 0 : batch.rows[i];
    Row& row = rows[at_row];
    const auto node = static_cast<int64_t>(row.pending.size());
    const int64_t parent = batch.parents.empty() ? node - 1 : batch.parents[i];
    SPECDEC_CHECK(parent >= -1 && parent < node, "node {} has no parent {}", node, parent);
    row.pending.push_back({token, parent});
    if (static_cast<int64_t>(row.kept.size() + row.pending.size()) > max_length_) {
      throw Error(fmt::format("row {} would hold more than {} tokens", at_row, max_length_));
    }
    places.push_back({at_row, node});
  }
  rows_ = std::move(rows);
  forwards_.push_back(static_cast<int64_t>(size));
  return places;
}

std::vector<Token> FakeModel::history(const Place& place) const {
  const Row& row = rows_[place.row];
  std::vector<Token> path;
  for (int64_t node = place.node; node >= 0; node = row.pending[static_cast<size_t>(node)].parent) {
    path.push_back(row.pending[static_cast<size_t>(node)].token);
  }
  std::vector<Token> history = row.kept;
  history.insert(history.end(), path.rbegin(), path.rend());
  return history;
}

ForwardResult FakeModel::forward(const TokenBatch& batch, const ForwardOptions& options) {
  SPECDEC_CHECK(options.layers.empty() && !batch.inputs.embeddings.defined() &&
                    !batch.inputs.attention_bias.defined(),
                "a fake model has no layers to choose from, embeddings or attention");
  const std::vector<Place> places = append(batch);
  std::vector<std::vector<double>> logits;
  std::vector<std::vector<double>> hidden;
  std::vector<std::vector<std::vector<double>>> captured(options.capture_layers.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const std::vector<Token> seen = history(places[i]);
    const bool last = i + 1 == places.size() || places[i + 1].row != places[i].row;
    if (options.logits == Logits::kAll || (options.logits == Logits::kLast && last)) {
      logits.push_back(table_(seen));
    }
    if (options.hidden == Hidden::kAll ||
        (options.hidden == Hidden::kScored && logits.size() > hidden.size())) {
      hidden.push_back(hidden_state(seen, -1));
    }
    for (size_t layer = 0; layer < captured.size(); ++layer) {
      captured[layer].push_back(hidden_state(seen, options.capture_layers[layer]));
    }
  }
  ForwardResult result;
  if (options.logits != Logits::kNone) {
    result.logits = to_matrix(logits, vocab_);
  }
  if (options.logits_use == LogitsUse::kBest && gives_best_) {
    result.best = best_of_each(std::exchange(result.logits, Tensor()));
    gave_best_ = gave_best_ || !result.best.empty();
  }
  if (options.logits_use == LogitsUse::kSampler && sampler_ != nullptr) {
    result.logits = result.logits.to(at::kFloat);
    result.sampler = sampler_;
  }
  if (!hidden.empty()) {
    result.final_hidden = to_matrix(hidden, kHidden);
  }
  for (const auto& layer : captured) {
    result.captured.push_back(to_matrix(layer, kHidden));
  }
  return result;
}

void FakeModel::commit(std::span<const int64_t> path, RowId row) {
  Row& kept_row = rows_[row];
  std::vector<Token> tokens;
  int64_t previous = -1;
  for (const int64_t node : path) {
    SPECDEC_CHECK(node >= 0 && node < static_cast<int64_t>(kept_row.pending.size()),
                  "no pending node {}", node);
    const Node& entry = kept_row.pending[static_cast<size_t>(node)];
    SPECDEC_CHECK(entry.parent == previous, "node {} does not follow node {}", node, previous);
    tokens.push_back(entry.token);
    previous = node;
  }
  kept_row.kept.insert(kept_row.kept.end(), tokens.begin(), tokens.end());
  kept_row.pending.clear();
}

void FakeModel::truncate(int64_t length, RowId row) {
  SPECDEC_CHECK(length >= 0 && length <= this->length(row), "cannot truncate {} tokens to {}",
                this->length(row), length);
  rows_[row].kept.resize(static_cast<size_t>(length));
  rows_[row].pending.clear();
}

RowId FakeModel::fork(RowId row, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= this->length(row), "cannot fork {} of {} tokens", length,
                this->length(row));
  const std::vector<Token>& kept = rows_[row].kept;
  return rows_.open({.kept = {kept.begin(), kept.begin() + length}});
}

}  // namespace specdec
