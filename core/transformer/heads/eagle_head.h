#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/transformer/heads/eagle_config.h"
#include "core/transformer/heads/head_layer.h"

namespace specdec {

/// An EAGLE head: one decoder layer over features of the target. Norm scales are as multiplied.
///
/// EAGLE-1/2: layer(fc [embedding of token t + 1, feature at t]) is the feature at t + 1; the
/// target's head makes logits of it, or those of its rows that a draft vocabulary names.
/// EAGLE-3: the captured streams at t, concatenated, go through fc once; the layer's attention
/// reads [normed embedding of token t + 1, normed feature], its output is the feature that recurs
/// (without fc; normed for norm_output), and lm_head over its norm gives the logits of a draft
/// vocabulary.
/// It may have more layers, which read the residual stream alone.
/// P-EAGLE: the same; a draft's later tokens are mask tokens with features of the
/// head's own, evaluated together (parallel_eagle.h).
struct EagleHead {
  EagleConfig config;
  Tensor fc;              ///< [hidden, 2 * hidden]; EAGLE-3: [hidden, captured * hidden]
  Tensor fc_bias;         ///< [hidden] or undefined
  HeadLayer layer;        ///< its attention_norm: EAGLE none, EAGLE-3 midlayer.hidden_norm
  Tensor embedding_norm;  ///< [hidden] EAGLE-3: midlayer.input_layernorm
  // EAGLE-3, undefined where the config does not ask for it:
  Tensor embedding;     ///< [vocab, hidden] own_embedding
  Tensor input_norm;    ///< [captured * hidden] norm_before_fc
  Tensor stream_norms;  ///< [captured, hidden] fc_norm
  Tensor feature_norm;  ///< [hidden] norm_before_residual: midlayer.hidden_norm, which is then not
                        ///< the layer's attention_norm: the residual is normed already
  Tensor norm;          ///< [hidden] EAGLE-3
  Tensor lm_head;       ///< [draft vocab, hidden] EAGLE-3
  std::vector<HeadLayer> later_layers;  ///< after the first; EAGLE-3 and P-EAGLE
  // P-EAGLE:
  Tensor mask_features;  ///< [1, captured * hidden] in place of streams, of tokens that are drafted
  /// [draft vocab] int64: the target's token for each draft token, that is i + d2t[i]; undefined =
  /// the vocabularies are the same.
  Tensor target_ids;
  std::string fingerprint;  ///< of config and weights, 16 hex digits
  std::string note = {};    ///< of check_head_target, where it was loaded
};

/// Loads a head's folder (config.json, model.safetensors) for a target, on the target's device.
/// Matrices are converted to `dtype`: see plain_dtype.
/// Throws WeightsError: see load_eagle_config and check_head_target; missing or unknown tensors,
/// wrong shapes; a d2t that leaves the target's vocabulary, names a token twice or does not fit
/// t2d.
std::shared_ptr<EagleHead> load_eagle_head(const std::filesystem::path& folder,
                                           EagleVersion version, const TransformerInfo& target,
                                           std::optional<at::ScalarType> dtype = std::nullopt);

/// Writes config.json and model.safetensors under the published names; dtype: see TensorWriter.
void save_eagle_head(const EagleHead& head, const std::filesystem::path& folder,
                     at::ScalarType dtype);

/// Random weights (normal, sd 1/sqrt(fan in)), for tests and where training starts. A draft
/// vocabulary smaller than the target's holds its first tokens; set target_ids for others.
std::shared_ptr<EagleHead> random_eagle_head(const EagleConfig& config,
                                             const RandomWeightsOptions& options = {});

/// Every tensor that training changes.
std::vector<Tensor*> parameters(EagleHead& head);

}  // namespace specdec
