#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/transformer/weights.h"
#include "experiments/config/config_node.h"

namespace specdec {

/// Memory that the weights of a checkpoint may take; layers that do not fit are read from a file.
struct MemoryLimit {
  std::filesystem::path model = {};  ///< whose weights; others are loaded whole. "" = each model's
  int64_t bytes = 0;                 ///< 0 = no limit
  std::filesystem::path layer_file = {};  ///< "" = one in the user's cache folder
};

/// Bytes written as a number and a unit: "8GB" (10^9 bytes), "0.5GB", "512MiB" (2^20 bytes each).
/// Throws ConfigError that says what is accepted.
int64_t parse_bytes(const std::string& text);
/// The limit that the texts of --memory-limit and --layer-file say, "" = not given. Throws
/// ConfigError as parse_bytes, and for a file without a limit.
MemoryLimit parse_memory_limit(const std::string& limit, const std::string& layer_file);
/// The keys memory_limit and layer_file of a model's config.
MemoryLimit read_memory_limit(const ConfigNode& model);

/// Text for readers: "12 of 30 layers are read from disk, 45.1 MB for each forward"; "" where none
/// are.
std::string disk_text(const TransformerWeights& weights);

}  // namespace specdec
