#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "core/formats/safetensors.h"

namespace specdec {

using at::Tensor;

/// A matrix that is only looked up, never multiplied: a per-layer embedding of billions of numbers,
/// of which a token reads one row. Its rows stay in the mapped file of the checkpoint, where the
/// system keeps what is in use, and become numbers when they are looked up. Immutable; copies share
/// it.
class RowTable {
 public:
  /// No table.
  RowTable() = default;
  /// rows [count, width] in memory.
  explicit RowTable(Tensor rows);
  /// An entry [count, width] of a checkpoint, which it keeps open.
  RowTable(std::shared_ptr<const TensorFiles> files, const TensorEntry& entry);

  bool defined() const { return width_ > 0; }
  int64_t rows() const { return count_; }
  int64_t width() const { return width_; }
  /// Memory beside the mapped file.
  int64_t bytes() const;
  /// Bytes of the mapped file that its rows are.
  int64_t mapped_bytes() const;
  /// out [n, width] = factor * rows of ids [n] int32 on the CPU, row 0 for ids beyond the table;
  /// out is float32 or float64.
  void look_up(const Tensor& ids, double factor, Tensor& out) const;

 private:
  Tensor rows_;
  std::shared_ptr<const TensorFiles> files_;
  const TensorEntry* entry_ = nullptr;
  int64_t count_ = 0;
  int64_t width_ = 0;
};

}  // namespace specdec
