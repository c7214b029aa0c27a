#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/transformer/tensor_source.h"

namespace specdec {

/// What matrices become that are loaded.
struct MatrixFormat {
  MatrixFormat(at::ScalarType converted, bool stored = false)  // NOLINT: a dtype is a format
      : dtype(converted), as_stored(stored) {}
  at::ScalarType dtype;
  /// Of a Linear: each tensor keeps its own format, where products can be made with it.
  bool as_stored;
};

/// A matrix that is not loaded, but only measured.
struct MatrixSize {
  std::vector<LinearPart> parts;
  int64_t columns = 0;
  LinearForm form = {};  ///< that a Linear of it has
  bool defined() const { return !parts.empty(); }
};

/// Tensors that become a matrix, one below the other.
struct JoinedTensors {
  std::vector<std::pair<std::string, int64_t>> tensors;  ///< names and rows
  int64_t columns;
};

/// The size of their matrix, without a check that they are there.
MatrixSize size_of(const JoinedTensors& joined, const TensorSource& source,
                   const MatrixFormat& format);

/// Loads them as a plain tensor (Matrix = Tensor) or laid out for the forward (Linear), without a
/// plain copy in between; or checks them only (MatrixSize). A Linear still takes biases, and is to
/// be arranged. Throws WeightsError for a tensor that is missing or has another shape.
template <class Matrix>
Matrix load_joined(TensorSource& source, const JoinedTensors& joined, const MatrixFormat& format);

/// The same of a stack of `count` matrices: each tensor holds a part of all of them.
template <class Matrix>
std::vector<Matrix> load_stack(TensorSource& source, const JoinedTensors& joined, int64_t count,
                               const MatrixFormat& format);

/// As load_joined, of one tensor [rows, columns], arranged.
template <class Matrix>
Matrix load_matrix(TensorSource& source, const std::string& name, const std::vector<int64_t>& shape,
                   const MatrixFormat& format);

// What only a Linear is told after it was loaded: plain tensors and sizes stay as they are.

inline void arrange(Tensor& /*matrix*/) {}
inline void arrange(MatrixSize& /*matrix*/) {}  // its form is that of an arranged one
inline void arrange(Linear& matrix) { matrix.arrange(); }

inline void set_bias(Tensor& /*matrix*/, const Tensor& /*bias*/) {}
inline void set_bias(MatrixSize& /*matrix*/, const Tensor& /*bias*/) {}
inline void set_bias(Linear& matrix, const Tensor& bias) { matrix.set_bias(bias); }

inline void join_rows(std::vector<Tensor>& /*matrices*/) {}
inline void join_rows(std::vector<MatrixSize>& /*matrices*/) {}

}  // namespace specdec
