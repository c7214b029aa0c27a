#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace specdec::cuda {

/// Sizes of a model, from its config.json.
struct ModelShape {
  std::string name;
  int32_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, window;
};

/// A matrix of a model, and how often a forward multiplies with one of its size.
struct MatrixShape {
  std::string name;
  int32_t outputs, in, count;
};

/// Of folder/NAME/config.json.
ModelShape read_shape(const std::string& folder, const std::string& name);
std::vector<MatrixShape> matrices_of(const ModelShape& shape);

}  // namespace specdec::cuda
