#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/transformer/heads/head_layer.h"

namespace specdec {

/// Multi-token-prediction modules in the target's own checkpoint (DeepSeek-V3, arXiv:2412.19437,
/// Section 2.2), laid out as Qwen3-Next has them. Module d of depth d + 1:
///
///   x = fc [norm(embedding of token t + 1 + d), norm(feature of module d - 1 at t)]
///   feature = norm(layer_d(x));  logits = the target's head of the feature
///
/// where the feature before module 0 is the target's final hidden state, after its norm. Deeper
/// tokens than there are modules are drafted by the last one, fed its own features. Norm scales are
/// as multiplied; layers are like the target's.
struct MtpHead {
  Tensor fc;              ///< [hidden, 2 * hidden]
  Tensor embedding_norm;  ///< [hidden] mtp.pre_fc_norm_embedding
  Tensor hidden_norm;     ///< [hidden] mtp.pre_fc_norm_hidden
  std::vector<HeadLayer> layers;
  Tensor norm;              ///< [hidden] mtp.norm
  std::string fingerprint;  ///< of the weights, 16 hex digits
  std::string note = {};    ///< of check_head_target, where it was loaded
};

/// Whether a target's folder holds modules: tensors "mtp.*" in its checkpoint, or mtp.safetensors
/// beside it. Reads headers only.
bool has_mtp(const std::filesystem::path& folder);
/// How many there are, by the names of their layers; 0 without any. Reads headers only.
int64_t count_mtp_modules(const std::filesystem::path& folder);

/// Loads the modules of a target's folder, on the target's device; their number is that of
/// mtp.layers.N. Throws WeightsError: none there, missing or unknown tensors, wrong shapes, modules
/// trained for other weights.
std::shared_ptr<MtpHead> load_mtp_head(const std::filesystem::path& folder,
                                       const TransformerInfo& target,
                                       std::optional<at::ScalarType> dtype = std::nullopt);

/// Writes `folder`/mtp.safetensors, to lie beside the target's model.safetensors.
void save_mtp_head(const MtpHead& head, const TransformerInfo& target,
                   const std::filesystem::path& folder, at::ScalarType dtype);

/// `modules` random ones for a target: for tests and where training starts.
std::shared_ptr<MtpHead> random_mtp_head(const TransformerInfo& target, int64_t modules,
                                         const RandomWeightsOptions& options = {});

/// Every tensor that training changes.
std::vector<Tensor*> parameters(MtpHead& head);

}  // namespace specdec
