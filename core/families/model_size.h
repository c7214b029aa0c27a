#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/families/model.h"
#include "core/transformer/matrix_tensors.h"
#include "core/transformer/weights.h"

namespace specdec {

/// A model whose weights are not read: the sizes of its matrices, and empty vectors.
using MeasuredModel = TransformerOf<MatrixSize>;

/// Checks all that load_model checks, but reads no weights.
std::shared_ptr<const MeasuredModel> measured(const OpenModel& model, const LoadOptions& options);
/// All matrices that take memory: a tied head is the embedding.
std::vector<const MatrixSize*> distinct_matrices(const MeasuredModel& model);
/// Bytes of all tensors that are no matrices: norms, biases and the like.
int64_t vector_bytes(const MeasuredModel& model);

/// What the matrices would take in memory, in bytes by format ("float32", "Q4_K", ...). Checks all
/// that load_model checks, but reads no weights.
std::map<std::string, int64_t> measure_weights(const OpenModel& model,
                                               const LoadOptions& options = {});

/// What a model would take in memory, and what it would leave in the file.
struct ModelSize {
  std::map<std::string, int64_t> matrices;  ///< bytes by format, as measure_weights says
  int64_t vectors = 0;                      ///< see vector_bytes
  int64_t mapped = 0;   ///< bytes of the table of the layers' own inputs, which stays in the file
  int64_t library = 0;  ///< bytes of scratch where a library multiplies a prompt's pieces
  TransformerInfo info;
};
ModelSize measure_model(const OpenModel& model, const LoadOptions& options = {});

}  // namespace specdec
