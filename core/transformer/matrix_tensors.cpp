#include "core/transformer/matrix_tensors.h"

#include <ATen/ATen.h>

#include <optional>
#include <type_traits>

#include "core/kernels/weight_fragments.h"

namespace specdec {
namespace {

/// A matrix of the size of all of them, whose numbers are not set.
template <class Matrix>
Matrix empty_matrix(const JoinedTensors& joined, const TensorSource& source,
                    const MatrixFormat& format) {
  const MatrixSize size = size_of(joined, source, format);
  if constexpr (std::is_same_v<Matrix, Tensor>) {
    int64_t rows = 0;
    for (const LinearPart& part : size.parts) {
      rows += part.out;
    }
    return at::empty({rows, joined.columns},
                     at::TensorOptions(format.dtype).device(source.place().device));
  } else if constexpr (std::is_same_v<Matrix, Linear>) {
    return {size.parts, size.columns, source.place()};
  } else {
    return size;
  }
}

}  // namespace

MatrixSize size_of(const JoinedTensors& joined, const TensorSource& source,
                   const MatrixFormat& format) {
  std::vector<LinearPart> parts;
  for (const auto& [name, count] : joined.tensors) {
    const auto stored = format.as_stored ? source.stored_format(name) : std::nullopt;
    const WeightFormat here = stored.value_or(weight_format(format.dtype));
    if (!parts.empty() && parts.back().format == here) {
      parts.back().out += count;
    } else {
      parts.push_back({.out = count, .format = here});
    }
  }
  const Placement& place = source.place();
  return {parts, joined.columns, {.layout = place.layout, .is_arranged = takes_fragments(place)}};
}

template <class Matrix>
Matrix load_joined(TensorSource& source, const JoinedTensors& joined, const MatrixFormat& format) {
  for (const auto& [name, rows] : joined.tensors) {  // before memory is taken for them
    source.stored(name, {rows, joined.columns});
  }
  auto matrix = empty_matrix<Matrix>(joined, source, format);
  if constexpr (!std::is_same_v<Matrix, MatrixSize>) {
    int64_t first = 0;
    for (const auto& [name, rows] : joined.tensors) {
      source.copy_into(matrix, first, name, {rows, joined.columns});
      first += rows;
    }
  }
  return matrix;
}

template <class Matrix>
std::vector<Matrix> load_stack(TensorSource& source, const JoinedTensors& joined, int64_t count,
                               const MatrixFormat& format) {
  for (const auto& [name, rows] : joined.tensors) {
    source.stored(name, {count, rows, joined.columns});
  }
  std::vector<Matrix> stack;
  for (int64_t i = 0; i < count; ++i) {
    stack.push_back(empty_matrix<Matrix>(joined, source, format));
  }
  if constexpr (!std::is_same_v<Matrix, MatrixSize>) {
    int64_t first = 0;
    for (const auto& [name, rows] : joined.tensors) {
      source.copy_stack(stack, first, name, {count, rows, joined.columns});
      first += rows;
    }
  }
  return stack;
}

template <class Matrix>
Matrix load_matrix(TensorSource& source, const std::string& name, const std::vector<int64_t>& shape,
                   const MatrixFormat& format) {
  auto matrix = load_joined<Matrix>(source, {{{name, shape[0]}}, shape[1]}, format);
  arrange(matrix);
  return matrix;
}

template Tensor load_joined<Tensor>(TensorSource&, const JoinedTensors&, const MatrixFormat&);
template Linear load_joined<Linear>(TensorSource&, const JoinedTensors&, const MatrixFormat&);
template MatrixSize load_joined<MatrixSize>(TensorSource&, const JoinedTensors&,
                                            const MatrixFormat&);
template std::vector<Tensor> load_stack<Tensor>(TensorSource&, const JoinedTensors&, int64_t,
                                                const MatrixFormat&);
template std::vector<Linear> load_stack<Linear>(TensorSource&, const JoinedTensors&, int64_t,
                                                const MatrixFormat&);
template std::vector<MatrixSize> load_stack<MatrixSize>(TensorSource&, const JoinedTensors&,
                                                        int64_t, const MatrixFormat&);
template Tensor load_matrix<Tensor>(TensorSource&, const std::string&, const std::vector<int64_t>&,
                                    const MatrixFormat&);
template Linear load_matrix<Linear>(TensorSource&, const std::string&, const std::vector<int64_t>&,
                                    const MatrixFormat&);
template MatrixSize load_matrix<MatrixSize>(TensorSource&, const std::string&,
                                            const std::vector<int64_t>&, const MatrixFormat&);

}  // namespace specdec
