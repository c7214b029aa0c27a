#include "core/prefix_cached_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

bool wants_states(const ForwardOptions& options) {
  return options.hidden == Hidden::kAll || !options.capture_layers.empty();
}

/// Stands in a row's text for a token that was evaluated with more than tokens before it: no prompt
/// begins with it.
constexpr Token kOwnInputs = -1;

bool has_own_inputs(const ForwardInputs& inputs) {
  return inputs.embeddings.defined() || inputs.attention_inputs.defined() ||
         inputs.features.defined() || inputs.attention_bias.defined();
}

/// A chain of tokens after the last pending node of row 0, through all layers, which read
/// all of the cache.
bool is_plain_chain(const TokenBatch& batch, const ForwardOptions& options) {
  return batch.rows.empty() && batch.parents.empty() && options.layers.empty() &&
         options.kv_read == KvRead::kAll && !has_own_inputs(batch.inputs);
}

/// Tokens as a row's text holds them.
std::vector<Token> tokens_of(const TokenBatch& batch) {
  if (!batch.tokens.defined()) {
    return std::vector<Token>(static_cast<size_t>(batch.inputs.embeddings.size(0)), kOwnInputs);
  }
  const Tensor tokens = batch.tokens.cpu().contiguous();
  const auto* first = tokens.const_data_ptr<Token>();
  return {first, first + tokens.numel()};
}

}  // namespace

PrefixCachedModel::PrefixCachedModel(std::unique_ptr<LanguageModel> model)
    : model_(std::move(model)) {
  model_->truncate(0);
}

int64_t PrefixCachedModel::length(RowId row) const {
  return replays() && row == 0 ? replayed_ : model_->length(row);
}

int64_t PrefixCachedModel::pending(RowId row) const {
  return model_->pending(row) + (row == 0 ? skipped_ : 0);
}

RowId PrefixCachedModel::fork(RowId row, int64_t length) {
  SPECDEC_CHECK(length >= 0 && length <= this->length(row), "cannot fork {} of {} tokens", length,
                this->length(row));
  const RowId branch = model_->fork(row, length);
  const std::vector<Token>& kept = rows_[row].kept;
  rows_[branch] = {.kept = {kept.begin(), kept.begin() + length}};
  return branch;
}

void PrefixCachedModel::close(RowId row) {
  model_->close(row);
  rows_.erase(row);
}

void PrefixCachedModel::drop_pending() {
  model_->truncate(model_->length());
  rows_[0].pending.clear();
  pending_states_.clear();
  skipped_ = 0;
}

void PrefixCachedModel::begin() {
  reused_ = 0;
  drop_pending();
  replayed_ = rows_[0].kept.empty() ? -1 : 0;
}

void PrefixCachedModel::truncate(int64_t length, RowId row) {
  SPECDEC_CHECK(length >= 0 && length <= this->length(row), "cannot truncate {} tokens to {}",
                this->length(row), length);
  if (row == 0 && length == 0) {
    begin();
    return;
  }
  if (replays() && row == 0) {
    drop_pending();
    replayed_ = length;
    return;
  }
  model_->truncate(length, row);
  rows_[row].kept.resize(static_cast<size_t>(length));
  rows_[row].pending.clear();
  if (row == 0) {
    states_.resize(std::min(states_.size(), static_cast<size_t>(length)));
    pending_states_.clear();
  }
}

int64_t PrefixCachedModel::rewindable_to(int64_t length, RowId row) const {
  return replays() && row == 0 ? length : model_->rewindable_to(length, row);
}

void PrefixCachedModel::cut(int64_t length) {
  const int64_t left = model_->rewindable_to(length);
  model_->truncate(left);
  std::vector<Token>& kept = rows_[0].kept;
  kept.resize(static_cast<size_t>(length));
  if (left < length) {  // the rest of it is gone
    const std::vector<Token> text = kept;
    const std::vector<States> states = std::move(states_);
    kept.resize(static_cast<size_t>(left));
    states_ = {states.begin(), states.begin() + std::min(left, std::ssize(states))};
    replayed_ = -1;
    model_->extend(TokenSpan(text).subspan(static_cast<size_t>(left)), {.logits = Logits::kNone});
    kept = text;
    states_ = states;
    reused_ -= length - left;
  }
  rows_[0].pending.clear();
  states_.resize(std::min(states_.size(), static_cast<size_t>(length)));
  pending_states_.clear();
  replayed_ = -1;
  skipped_ = 0;
}

int64_t PrefixCachedModel::count_reusable(const TokenBatch& batch,
                                          const ForwardOptions& options) const {
  if (!is_plain_chain(batch, options) || options.logits == Logits::kAll) {
    return 0;
  }
  const std::vector<Token> tokens = tokens_of(batch);
  const std::vector<Token>& kept = rows_.at(0).kept;
  const auto [mine, theirs] =
      std::mismatch(kept.begin() + replayed_, kept.end(), tokens.begin(), tokens.end());
  // The token whose logits are wanted is always evaluated.
  const int64_t wanted = std::ssize(tokens) - (options.logits == Logits::kLast ? 1 : 0);
  const int64_t common = std::min<int64_t>(theirs - tokens.begin(), wanted);
  if (!wants_states(options)) {
    return common;
  }
  const auto known = std::find_if(states_.begin(), states_.end(), [&](const States& states) {
    return options.hidden == Hidden::kAll && !states.front().defined();
  });
  return options.capture_layers == state_layers_
             ? std::clamp<int64_t>(known - states_.begin() - replayed_, 0, common)
             : 0;
}

ForwardResult PrefixCachedModel::forward(const TokenBatch& batch, const ForwardOptions& options) {
  SPECDEC_CHECK(skipped_ == 0, "forward: {} nodes of a prompt are not committed yet", skipped_);
  SPECDEC_CHECK(batch.tokens.defined() || batch.inputs.embeddings.defined(),
                "forward: there are neither tokens nor embeddings");
  if (options.library_products) {
    throw Error(
        "a model that keeps prefixes reads no prompt from its beginning by a library: leave "
        "library_products out, or give the model without its prefixes");
  }
  return replays() ? replay(batch, options) : evaluate(batch, options);
}

ForwardResult PrefixCachedModel::replay(const TokenBatch& batch, const ForwardOptions& options) {
  const int64_t begin = replayed_;
  const int64_t reusable = count_reusable(batch, options);
  if (reusable == 0) {
    cut(begin);
    return evaluate(batch, options);
  }
  const int64_t nodes = batch.tokens.size(0);
  ForwardResult result;
  if (reusable < nodes) {
    cut(begin + reusable);
    replayed_ = begin;  // until the nodes are committed
    result = evaluate({.tokens = batch.tokens.narrow(0, reusable, nodes - reusable)}, options);
  }
  prepend_states(begin, reusable, options, result);
  skipped_ = reusable;
  reused_ += reusable;
  return result;
}

ForwardResult PrefixCachedModel::evaluate(const TokenBatch& batch, const ForwardOptions& options) {
  ForwardOptions own = options;
  own.keep_hidden = false;  // states are kept with those of earlier forwards, on the host
  ForwardResult result = model_->forward(batch, own);
  const std::vector<Token> tokens = tokens_of(batch);
  for (size_t i = 0; i < tokens.size(); ++i) {
    rows_[batch.rows.empty() ? 0 : batch.rows[i]].pending.push_back(
        has_own_inputs(batch.inputs) ? kOwnInputs : tokens[i]);
  }
  note_states(result, options, std::ssize(tokens));
  return result;
}

void PrefixCachedModel::note_states(const ForwardResult& result, const ForwardOptions& options,
                                    int64_t nodes) {
  const Row& row = rows_[0];
  if (rows_.size() != 1 || !wants_states(options) || !options.layers.empty()) {
    return;
  }
  // Where only captured layers are wanted the final states may be missing.
  const bool all_final = result.final_hidden.defined() && result.final_hidden.size(0) == nodes;
  if (options.hidden == Hidden::kAll && !all_final) {
    return;
  }
  if (row.kept.empty()) {
    state_layers_ = options.capture_layers;
  }
  if (options.capture_layers != state_layers_ || states_.size() != row.kept.size() ||
      std::ssize(pending_states_) + nodes != std::ssize(row.pending)) {
    return;
  }
  for (int64_t node = 0; node < nodes; ++node) {
    States states = {all_final ? result.final_hidden.select(0, node) : Tensor()};
    for (const Tensor& layer : result.captured) {
      states.push_back(layer.select(0, node));
    }
    pending_states_.push_back(std::move(states));
  }
}

void PrefixCachedModel::prepend_states(int64_t begin, int64_t count, const ForwardOptions& options,
                                       ForwardResult& result) const {
  const auto joined = [&](size_t stream, const Tensor& rest) {
    std::vector<Tensor> rows;
    for (int64_t i = begin; i < begin + count; ++i) {
      rows.push_back(states_[static_cast<size_t>(i)][stream]);
    }
    Tensor all = at::stack(rows);
    return rest.defined() ? at::cat({all, rest}) : all;
  };
  if (options.hidden == Hidden::kAll) {
    result.final_hidden = joined(0, result.final_hidden);
  }
  result.captured.resize(options.capture_layers.size());
  for (size_t layer = 0; layer < result.captured.size(); ++layer) {
    result.captured[layer] = joined(layer + 1, result.captured[layer]);
  }
}

void PrefixCachedModel::commit(std::span<const int64_t> path, RowId row) {
  const int64_t skipped = row == 0 ? skipped_ : 0;
  for (int64_t i = 0; skipped > 0 && i < std::ssize(path); ++i) {
    SPECDEC_CHECK(path[static_cast<size_t>(i)] == i, "a prompt is committed from its beginning on");
  }
  if (replays() && row == 0 && std::ssize(path) <= skipped) {
    drop_pending();
    replayed_ += std::ssize(path);
    if (replayed_ == std::ssize(rows_[0].kept)) {
      replayed_ = -1;
    }
    return;
  }
  std::vector<int64_t> own;
  for (const int64_t node : path.subspan(static_cast<size_t>(skipped))) {
    own.push_back(node - skipped);
  }
  model_->commit(own, row);
  Row& kept = rows_[row];
  const bool all_known = row == 0 && states_.size() == kept.kept.size();
  for (const int64_t node : own) {
    kept.kept.push_back(kept.pending[static_cast<size_t>(node)]);
    if (all_known && node < std::ssize(pending_states_)) {
      states_.push_back(pending_states_[static_cast<size_t>(node)]);
    }
  }
  kept.pending.clear();
  if (row == 0) {
    pending_states_.clear();
    skipped_ = 0;
    replayed_ = -1;
  }
}

}  // namespace specdec
