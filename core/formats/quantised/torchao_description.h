#pragma once
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "core/formats/quantised/compressed_matrix.h"

namespace specdec {

/// What descriptions of matrices say beside them.
struct TorchaoParts {
  std::set<std::string> names = {};  ///< that their parts may have
  bool rounds_activations = false;   ///< the inputs of any; see TorchaoMatrices
};

/// A matrix as its description `said`, {"_type": ..., "_data": {...}} of a file's metadata, has it,
/// over its parts in the files; what else is said of it is added to `parts`. Throws WeightsError
/// naming the folder and the matrix for one that is not supported, or does not fit its parts.
CompressedMatrix read_torchao_matrix(const TensorFiles& files, const std::string& name,
                                     const nlohmann::json& said, TorchaoParts& parts);

}  // namespace specdec
