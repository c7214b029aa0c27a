#pragma once
#include <utility>

#include "core/language_model.h"

namespace specdec {

/// A row of a model that is closed at its end. Borrows the model.
class OpenRow {
 public:
  /// Opens a new row.
  explicit OpenRow(LanguageModel& model) : OpenRow(model, model.open()) {}
  /// Takes a row that is open already, other than row 0.
  OpenRow(LanguageModel& model, RowId row) : model_(&model), row_(row) {}
  ~OpenRow() { close(); }
  OpenRow(OpenRow&& other) noexcept
      : model_(std::exchange(other.model_, nullptr)), row_(other.row_) {}
  OpenRow& operator=(OpenRow&& other) noexcept {
    if (this != &other) {
      close();
      model_ = std::exchange(other.model_, nullptr);
      row_ = other.row_;
    }
    return *this;
  }
  OpenRow(const OpenRow&) = delete;
  OpenRow& operator=(const OpenRow&) = delete;

  RowId name() const { return row_; }

 private:
  void close() noexcept {
    if (model_ != nullptr) {
      model_->close(row_);
    }
  }

  LanguageModel* model_;
  RowId row_;
};

}  // namespace specdec
