#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace specdec::cuda {

/// Sizes of a model, from its config.json.
struct ModelShape {
  std::string name;
  int32_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, window;
  int32_t experts, chosen, expert_size;  ///< 0 = none
};

/// A matrix of a model, and how often a forward multiplies with one of its size.
struct MatrixShape {
  std::string name;
  int32_t outputs, in, count;
};

/// Reads the shape from `folder`/`name`/config.json.
ModelShape read_shape(const std::string& folder, const std::string& name);
std::vector<MatrixShape> matrices_of(const ModelShape& shape);
/// Matrices of each expert of a model.
std::vector<MatrixShape> expert_matrices_of(const ModelShape& shape);

}  // namespace specdec::cuda
