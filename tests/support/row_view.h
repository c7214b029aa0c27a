#pragma once
#include <algorithm>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/language_model.h"

namespace specdec {

/// One row of a model as a model of its own, so that sequential strategies run on the rows of one
/// cache. Its row 0 is `row`, which exists already. Calls of all views wait for one another.
class RowView final : public LanguageModel {
 public:
  RowView(LanguageModel& model, int64_t row, std::mutex& calls)
      : model_(model), row_(row), calls_(calls) {}

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options) override {
    const std::lock_guard lock(calls_);
    TokenBatch own = batch;
    own.rows.assign(static_cast<size_t>(batch.tokens.size(0)), row_);
    return model_.forward(own, options);
  }
  void commit(std::span<const int64_t> path, int64_t /*row*/) override {
    const std::lock_guard lock(calls_);
    model_.commit(path, row_);
  }
  void truncate(int64_t length, int64_t /*row*/) override {
    const std::lock_guard lock(calls_);
    model_.truncate(length, row_);
  }
  /// Only the beginning of a new sequence.
  void reorder(std::span<const int64_t> parents) override {
    SPECDEC_CHECK(parents.empty(), "a view has one row, not {}", parents.size());
    truncate(0, 0);
  }
  int64_t length(int64_t /*row*/) const override {
    const std::lock_guard lock(calls_);
    return model_.length(row_);
  }
  int64_t pending(int64_t /*row*/) const override {
    const std::lock_guard lock(calls_);
    return model_.pending(row_);
  }
  int64_t vocab_size() const override { return model_.vocab_size(); }
  int64_t max_length() const override { return model_.max_length(); }
  const Internals* internals() const override { return model_.internals(); }

 private:
  LanguageModel& model_;
  int64_t row_;
  std::mutex& calls_;
};

}  // namespace specdec
