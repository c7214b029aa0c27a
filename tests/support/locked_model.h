#pragma once
#include <mutex>

#include "core/language_model.h"

namespace specdec {

/// A model whose calls wait for one another, so that threads may share it, each with a row of its
/// own. Borrows the model.
class LockedModel final : public LanguageModel {
 public:
  explicit LockedModel(LanguageModel& model) : model_(model) {}

  ForwardResult forward(const TokenBatch& batch, const ForwardOptions& options = {}) override {
    const std::lock_guard lock(calls_);
    return model_.forward(batch, options);
  }
  void commit(std::span<const int64_t> path, RowId row = 0) override {
    const std::lock_guard lock(calls_);
    model_.commit(path, row);
  }
  void truncate(int64_t length, RowId row = 0) override {
    const std::lock_guard lock(calls_);
    model_.truncate(length, row);
  }
  int64_t rewindable_to(int64_t length, RowId row = 0) const override {
    const std::lock_guard lock(calls_);
    return model_.rewindable_to(length, row);
  }
  RowId open() override {
    const std::lock_guard lock(calls_);
    return model_.open();
  }
  RowId fork(RowId row, int64_t length) override {
    const std::lock_guard lock(calls_);
    return model_.fork(row, length);
  }
  void close(RowId row) override {
    const std::lock_guard lock(calls_);
    model_.close(row);
  }
  int64_t length(RowId row = 0) const override {
    const std::lock_guard lock(calls_);
    return model_.length(row);
  }
  int64_t pending(RowId row = 0) const override {
    const std::lock_guard lock(calls_);
    return model_.pending(row);
  }
  int64_t vocab_size() const override { return model_.vocab_size(); }
  const DraftVocabulary* draft_vocabulary() const override { return model_.draft_vocabulary(); }
  int64_t max_length() const override { return model_.max_length(); }
  const Internals* internals() const override { return model_.internals(); }

 private:
  LanguageModel& model_;
  mutable std::mutex calls_;
};

}  // namespace specdec
