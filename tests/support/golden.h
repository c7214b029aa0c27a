#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/formats/safetensors.h"
#include "core/types.h"
#include "tests/support/max_difference.h"

namespace specdec {

/// A file or folder in tests/data of the source tree, or else a golden set beside the repository
/// (../shared/golden, or $SPECDEC_SHARED/golden), where the large ones are.
std::filesystem::path test_data(const std::string& name);
/// The file NAME.gguf of a golden set, found as test_data finds sets: tests/data/gguf has the small
/// ones.
std::filesystem::path golden_gguf(const std::string& name);
/// Names among `names` that test_data, or golden_gguf, finds: instances of tests.
std::vector<std::string> found_golden(const std::vector<std::string>& names);
std::vector<std::string> found_golden_gguf(const std::vector<std::string>& names);
/// Ends a test that wants a set which is not there.
#define SPECDEC_SKIP_WITHOUT(path)                                                \
  if (!std::filesystem::exists(path)) {                                           \
    GTEST_SKIP() << (path).string() << " is not here, nor beside the repository"; \
  }

/// A golden set: a tiny checkpoint folder and what the reference computes with it.
class Golden {
 public:
  explicit Golden(const std::string& name);
  /// Tag of a golden set that is only the file of what is computed.
  struct File {};
  Golden(const std::filesystem::path& file, File kind);
  const std::filesystem::path& folder() const { return folder_; }
  /// A copy of a tensor of golden.safetensors; integers as int64.
  at::Tensor tensor(const std::string& name) const;
  std::vector<Token> tokens(const std::string& name) const;
  bool has(const std::string& name) const;

 private:
  std::filesystem::path folder_;
  SafetensorsFile file_;
};

/// The sets of Gemma 1, 2 and 3; of its wrapper where it is found.
std::vector<std::string> gemma_golden_names();
/// The sets of all families that can be converted.
std::vector<std::string> golden_names();
/// The sets of golden_names(), and those of Gemma 3n and 4 that are found.
std::vector<std::string> all_golden_names();

}  // namespace specdec
