#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/formats/safetensors.h"
#include "core/types.h"
#include "tests/support/max_difference.h"

namespace specdec {

/// tests/data of the source tree.
std::filesystem::path test_data(const std::string& name);

/// A golden set: a tiny checkpoint folder and what the reference computes with it.
class Golden {
 public:
  explicit Golden(const std::string& name);
  /// Only the file of what is computed.
  struct File {};
  Golden(const std::filesystem::path& file, File kind);
  const std::filesystem::path& folder() const { return folder_; }
  /// A copy of a tensor of golden.safetensors; integers as int64.
  at::Tensor tensor(const std::string& name) const;
  std::vector<Token> tokens(const std::string& name) const;

 private:
  std::filesystem::path folder_;
  SafetensorsFile file_;
};

/// The sets of Gemma 1, 2 and 3.
std::vector<std::string> gemma_golden_names();
/// The sets of Gemma 3n and 4, which the cached forward alone computes.
std::vector<std::string> gemma4_golden_names();
/// The sets of all other families.
std::vector<std::string> golden_names();

}  // namespace specdec
