#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace specdec {

/// How an adapter's config names modules: endings of their paths, a regular expression of whole
/// paths, or all linear ones.
class ModuleNames {
 public:
  /// No names.
  ModuleNames() = default;
  /// A list or a text, as `key` of the file `where` holds it; throws WeightsError.
  ModuleNames(const nlohmann::json& value, const std::string& key, const std::string& where);

  bool contains(const std::string& path) const;

 private:
  bool all_ = false;
  std::vector<std::string> endings_;
  std::string pattern_;  ///< "" = none
};

/// What PEFT's adapter_config.json says of a LoRA adapter (Hu et al., 2021, arXiv:2106.09685).
/// Modules go by their paths in the hub's model: "model.layers.0.self_attn.q_proj".
struct LoraConfig {
  std::string where;  ///< the file
  std::string base;   ///< name of the model that it was trained on; "" = not said
  int64_t rank = 0;
  double alpha = 0.0;
  bool rank_stabilised = false;                 ///< use_rslora: alpha / sqrt(rank)
  std::map<std::string, int64_t> rank_pattern;  ///< regular expression of a path's end -> rank
  std::map<std::string, double> alpha_pattern;
  ModuleNames targets;
  ModuleNames excluded;
  std::vector<int64_t> layers;  ///< that are adapted; empty = all

  /// Whether the adapter adapts a module of a layer (-1 = of none).
  bool adapts(const std::string& path, int64_t layer) const;
  /// Rank of a module's matrices. Throws WeightsError where two patterns disagree on it.
  int64_t rank_of(const std::string& path) const;
  /// What B(A x) is multiplied by: alpha / rank, or alpha / sqrt(rank).
  double factor_of(const std::string& path) const;
};

/// Throws WeightsError naming file and key, also for what changes the result and is not supported
/// here: DoRA, biases, modules saved whole, initialisations that change the base, ...
LoraConfig parse_lora_config(const std::string& text, const std::string& where);
/// Reads a folder's adapter_config.json.
LoraConfig load_lora_config(const std::filesystem::path& folder);

}  // namespace specdec
