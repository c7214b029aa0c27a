#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/formats/safetensors.h"
#include "core/transformer/weights.h"

namespace specdec {

class JsonKeys;

/// The target that a head was trained for: `trained_for` in the head's config.json. Published heads
/// have none; then only the shapes can be checked.
struct HeadTarget {
  std::string fingerprint;  ///< TransformerInfo::fingerprint; "" = unknown
  std::string weights;      ///< its weights_fingerprint; "" = unknown
  int64_t vocab_size = 0;   ///< 0 = unknown, as below
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
};

HeadTarget head_target(const TransformerInfo& target);
/// A target of which only this is known, on a device without memory. Loaders of heads check for it
/// all that they check for others, names, shapes and dtypes of tensors included, and read no
/// weights: what they return cannot run.
TransformerInfo unloaded_target(const TransformerConfig& config, std::vector<LayerPlan> plan = {});
/// Reads `trained_for` of a config; all unknown when it has none.
HeadTarget read_head_target(const JsonKeys& keys);
nlohmann::json head_target_json(const HeadTarget& target);

/// Throws WeightsError, with what differs, when a head in `folder` that was trained for `expected`
/// cannot serve a target of this config.
void check_head_shapes(const HeadTarget& expected, const TransformerConfig& target,
                       const std::filesystem::path& folder);
/// Throws as check_head_shapes. Returns what to tell the user of a target with other weights, such
/// as the same ones stored in another type or with an adapter: drafts stay correct, but may be
/// accepted less. "" where the weights are the same (whatever <bos>, <eos> and the longest input)
/// or unknown.
std::string check_head_target(const HeadTarget& expected, const TransformerInfo& target,
                              const std::filesystem::path& folder);

/// The text of `folder`/config.json. Throws WeightsError when folder or file is missing.
std::string read_head_config(const std::filesystem::path& folder);

/// Reads heads, kv_heads, head_dim and intermediate_size of a config's layers into a plan. Throws
/// WeightsError, naming the key, for numbers that do not fit together.
void read_head_layer_sizes(const JsonKeys& keys, int64_t hidden_size, LayerPlan& plan);

/// The dtype of a head's plain tensors: what was asked for, or as stored where that is no plain
/// dtype (int8) or nothing; always float64 on a float64 target.
at::ScalarType plain_dtype(std::optional<at::ScalarType> wanted, at::ScalarType stored,
                           const TransformerInfo& target);
/// What a config says that it is a head of: "eagle", "eagle3", "medusa", "dflash", "dflash2",
/// "domino", "dspark", "peagle"; "" when it says nothing of a head (a model's, or a published
/// head's that only its user knows). Throws WeightsError, by name, for xPress, which is not
/// supported.
std::string head_kind(const JsonKeys& keys);
/// What `folder`/config.json says that it is a head of; "" without the file.
std::string head_kind(const std::filesystem::path& folder);
/// Throws WeightsError, with the drafter that takes it, when the folder holds a head, not a model.
void refuse_head(const std::filesystem::path& folder);

/// The tensors of `folder`/`file`, or where there is none, of the checkpoint in the folder.
CheckpointTensors head_tensors(const std::filesystem::path& folder, const char* file);

}  // namespace specdec
