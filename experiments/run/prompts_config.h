#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "experiments/components/components.h"
#include "experiments/config/config_node.h"
#include "experiments/run/prompts.h"

namespace specdec {

/// Greatest number of tokens or prompts that a config can name.
inline constexpr int64_t kMaxTokens = 1 << 24;

/// `prompts:` of a config.
struct PromptsConfig {
  std::filesystem::path file;
  bool chat = false;              ///< in the checkpoint's chat format; else as plain text
  bool multi_turn = true;         ///< all turns one after the other; else the first only
  int64_t max_prompt_tokens = 0;  ///< longer ones are left out; 0 = as long as the model takes
  /// Prompts in the file's order, after `categories`, `skip`, `per_category` and `limit`.
  std::vector<Prompt> prompts;
};

/// Reads the node and its file. `target` is nullptr when its files cannot be read. Prompts that ask
/// for adapters have these in their category, so reports have rows of them. Notes as mistakes:
/// broken files, categories that no prompt has, prompts that the target cannot encode, adapters
/// that are not among `adapters`.
PromptsConfig read_prompts_config(const ConfigNode& node, const ModelFiles* target,
                                  const std::vector<AdapterChoice>& adapters);

}  // namespace specdec
