#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/transformer/heads/head_files.h"
#include "core/transformer/plan.h"

namespace specdec {

/// The config.json of a DFlash head as z-lab publishes it. Its keys lie in `dflash_config` or at
/// the top, the layers' (Qwen 3) at the top.
struct DFlashConfig {
  int64_t hidden_size = 0;  ///< the target's
  int64_t vocab_size = 0;   ///< the target's
  double rms_norm_eps = 1e-6;
  std::vector<LayerPlan> plan;
  std::vector<bool> causal;      ///< [layers] whether a row of the block sees only those before it
  int64_t block_size = 16;       ///< rows, of which the first is the newest committed token
  Token mask_token = 0;          ///< the token of the others
  double embedding_scale = 1;    ///< of the target's table as it is stored
  double output_multiplier = 1;  ///< of the logits before the soft cap
  double soft_cap = 0;           ///< of the draft's logits, which is not the target's; 0 = none
  /// The target's layers whose outputs it is fed, concatenated; empty = z-lab's choice for a
  /// target.
  std::vector<int64_t> capture_layers;
  HeadTarget trained_for;
};

/// Reads `folder`/config.json and checks it as far as that goes without the target. Throws
/// WeightsError naming file and key: for what is not supported, and for heads of another kind.
DFlashConfig load_dflash_config(const std::filesystem::path& folder);
/// The text of a config.json that load_dflash_config reads back as it was.
std::string dflash_config_json(const DFlashConfig& config);

/// Throws WeightsError when the head cannot serve a target of this config.
void check_dflash_config(const DFlashConfig& config, const TransformerConfig& target,
                         const std::filesystem::path& folder);
/// The layers that it captures of this target.
std::vector<int64_t> dflash_capture_layers(const DFlashConfig& config,
                                           const TransformerConfig& target);

/// One for a target, of `layers` layers with the heads of the target's first one: for tests, and
/// where training starts.
DFlashConfig make_dflash_config(const TransformerInfo& target, int64_t layers, int64_t block_size);

}  // namespace specdec
