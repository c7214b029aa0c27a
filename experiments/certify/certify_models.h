#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decoders/analysis/sequence_distribution.h"
#include "experiments/components/components.h"

namespace specdec {

/// A folder of its own under the system's temporary one, removed with all it holds.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Tiny random Gemmas in a folder, as a user's checkpoints would be, and strategies built on them
/// from YAML: the code that certify runs is the code that experiments run, in float64.
///
/// `target` and `draft` have a vocabulary of 3 tokens (every outcome can be enumerated), two layers
/// and a sliding window of 4 tokens, which every task wraps; `recurrent_draft` is a RecurrentGemma
/// of that vocabulary, whose states every rejection takes back.
class CertifyModels {
 public:
  static constexpr int64_t kVocab = 3;
  using WriteFiles = std::function<void(const std::filesystem::path& folder, uint64_t seed)>;

  /// `write_files`: of a component's examples; may be empty.
  CertifyModels(uint64_t seed, const WriteFiles& write_files);

  /// A strategy as in a config; `<folder>` is replaced. Throws ConfigError when it is refused.
  /// Borrows this object; one strategy runs at a time.
  std::unique_ptr<DecodingStrategy> build(const std::string& yaml, const Components& components,
                                          const Task& task);
  /// The target's logits by plain forwards of whole histories, remembered.
  NextLogits target_logits();

 private:
  ScratchFolder folder_;
  ModelLoader loader_;
  ModelCatalog catalog_;
  std::unique_ptr<TransformerModel> target_;
  std::unique_ptr<TransformerModel> reference_;
  std::map<std::vector<Token>, std::vector<double>> logits_;
};

/// A made-up cost curve, equal on every machine, so that decisions that depend on speed can be
/// repeated: drafting pays. `name` as in BuildContext::cost_curve.
CostCurve made_up_cost_curve(const std::string& name);

/// `text` with every `from` replaced.
std::string replace_all(std::string text, const std::string& from, const std::string& to);

}  // namespace specdec
