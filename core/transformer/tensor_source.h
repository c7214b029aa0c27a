#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/formats/safetensors.h"
#include "core/hash.h"
#include "core/kernels/linear.h"
#include "core/kernels/row_table.h"
#include "core/kernels/stored_rows.h"
#include "core/transformer/tensor_names.h"

namespace specdec {

using at::Tensor;

/// Inputs that share a scale in matrices stored as I8: a value is code * scale, the scales are the
/// F16 tensor "NAME.scales" [rows, columns / 32] beside the codes "NAME" (as in GGUF's Q8_0).
inline constexpr int64_t kInt8Inputs = 32;

/// Takes tensors of a checkpoint by name, checks shape and dtype, and remembers which were taken.
/// Every complaint is a WeightsError that names folder and tensor; values that are NaN or infinite
/// are one. On a meta device names, shapes and dtypes are checked, and nothing but integers is
/// read, and what skip_copy compares.
class TensorSource {
 public:
  TensorSource(std::shared_ptr<const TensorFiles> checkpoint, const Placement& place);
  TensorSource(CheckpointTensors checkpoint, const Placement& place);

  /// Tensors of language models that are wrapped for other inputs lie under a prefix, those of
  /// models saved without their head under none: looks for `name` there and from now on finds
  /// "model.x" at "language_model.model.x", "model.language_model.x", "x" or "language_model.x".
  void find_prefix(const std::string& name);

  bool has(const std::string& name) const;
  /// A converted copy; of shape [] for a single value.
  Tensor load(const std::string& name, const std::vector<int64_t>& shape, at::ScalarType dtype);
  /// Hands over a tensor's values as stored (blocks as float32), some rows at a time, in order;
  /// their pages of the file are given back.
  void read_rows(const std::string& name, const std::vector<int64_t>& shape,
                 const std::function<void(int64_t first, const Tensor& rows)>& use);
  /// Copies a tensor into rows `first` on of a matrix, converting. Takes little memory beside it:
  /// pages of the file are given back as they are read.
  void copy_into(Tensor& matrix, int64_t first, const std::string& name,
                 const std::vector<int64_t>& shape);
  /// Copies a tensor into rows of a Linear. Where both have the same blocks, these are taken over
  /// as they are.
  void copy_into(Linear& matrix, int64_t first, const std::string& name,
                 const std::vector<int64_t>& shape);
  /// Copies a stack of matrices [count, rows, columns] into rows `first` on of as many matrices
  /// (Tensor or Linear), as copy_into does.
  template <class Matrix>
  void copy_stack(std::vector<Matrix>& matrices, int64_t first, const std::string& name,
                  const std::vector<int64_t>& shape);
  /// A matrix that is only looked up: it stays in the file.
  RowTable row_table(const std::string& name, const std::vector<int64_t>& shape);
  /// The format of a Linear that holds a matrix as it is stored beside others; none for float64 and
  /// blocks that products cannot be made with, there where matrices are copied to.
  std::optional<WeightFormat> stored_format(const std::string& name) const;
  /// A copy of I64 or I32 values, as int64 on the CPU.
  Tensor load_integers(const std::string& name, const std::vector<int64_t>& shape);
  /// A copy of booleans, on the CPU.
  Tensor load_booleans(const std::string& name, const std::vector<int64_t>& shape);
  /// A tensor as stored, blocks and order of rows included; lives as long as the checkpoint.
  const TensorEntry& stored(const std::string& name, const std::vector<int64_t>& shape);
  /// The dtype of a tensor as stored; float32 for one in blocks.
  at::ScalarType stored_dtype(const std::string& name, const std::vector<int64_t>& shape);
  /// The dtype that holds all matrices of the text model: their own where they have the same,
  /// float64 where one has that, else float32.
  at::ScalarType common_dtype() const;
  /// Takes a tensor that is not needed, if it is there; its shape is checked.
  void skip(const std::string& name, const std::vector<int64_t>& shape);
  /// Takes a tensor that holds the same bytes as another one; false, taking none, when it does not.
  bool skip_copy(const std::string& name, const std::string& other,
                 const std::vector<int64_t>& shape);

  /// From now on the bytes of matrices are not read: only names, shapes and dtypes are checked, and
  /// hash() says nothing.
  void leave_out_bytes() { reads_bytes_ = false; }

  /// Complains about tensors, whose names begin with `prefix`, that config.json does not speak of.
  /// Without a prefix, these are skipped silently: vision parts, rotary buffers,
  /// multi-token-prediction modules (core/transformer/heads/mtp_head.h loads those).
  void check_all_taken(const std::string& prefix = "") const;
  /// Hash of the names and bytes of all tensors taken so far.
  uint64_t hash() const { return hash_; }
  const std::filesystem::path& folder() const { return checkpoint_->folder(); }
  /// Where tensors and matrices are copied to.
  const Placement& place() const { return place_; }

 private:
  const TensorEntry& take(const std::string& name, const std::vector<int64_t>& shape,
                          const std::set<DType>& dtypes);
  /// What an error adds about a tensor that is no weights by itself and has scales beside it.
  std::string scales_hint(const std::string& full) const;
  /// Throws WeightsError where an index promises a tensor of check_all_taken() that no shard holds:
  /// a bias that is missing would go unnoticed.
  void check_none_missing(const std::string& prefix) const;
  void take_scales(const std::string& name, const std::vector<int64_t>& shape);
  /// Hashes the bytes of a tensor and checks that its values are numbers.
  void read_bytes(const TensorEntry& entry);
  void check_finite(const TensorEntry& entry, size_t begin, size_t size) const;

  /// A part of a tensor's rows at a time, in order.
  void for_rows(const TensorEntry& entry,
                const std::function<void(int64_t first, const Tensor& rows)>& use) const;

  /// Takes over blocks as they are.
  static void set_blocks(const TensorEntry& entry, Linear& matrix, int64_t first);

  std::shared_ptr<const TensorFiles> checkpoint_;
  Placement place_;
  TensorNames names_;
  bool reads_bytes_;
  std::set<std::string> taken_;
  uint64_t hash_ = kHashStart;
};

}  // namespace specdec
