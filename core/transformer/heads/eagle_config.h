#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/transformer/heads/head_files.h"
#include "core/transformer/plan.h"
#include "core/transformer/rope_config.h"

namespace specdec {

enum class EagleVersion {
  kEagle,   ///< EAGLE-1 and 2 (Li et al., 2024, arXiv:2401.15077, arXiv:2406.16858)
  kEagle3,  ///< EAGLE-3 (Li et al., 2025, arXiv:2503.01840)
  kPEagle,  ///< EAGLE-3's features, but all tokens of a draft in one forward (arXiv:2602.01469)
};
/// Whether heads are fed captured streams of the target and have norms and an lm_head of their own:
/// EAGLE-3 and P-EAGLE.
bool captures_streams(EagleVersion version);
/// Name of a version: "eagle", "eagle3", "peagle".
std::string eagle_version_name(EagleVersion version);
/// Version of a name; nothing for names of other heads.
std::optional<EagleVersion> find_eagle_version(const std::string& name);

/// What the layer of a head is like: its config's model_type.
enum class LayerStyle {
  kLlama,  ///< norms scale by w, none after the branches nor on q and k, SiLU: published heads
  kQwen3,  ///< the same, with norms on q and k
  kGemma,  ///< norms scale by 1 + w, also after the branches and on q and k, tanh GELU
  kGemma4  ///< norms as Gemma's, but by w and on v too; K = V, part of a head turned: DeepSpec
};

/// A head's config.json, defaults filled in. Reads the keys of published heads (SafeAILab/EAGLE,
/// SpecForge, speculators, DeepSpec) and those that save_eagle_head writes.
struct EagleConfig {
  EagleVersion version = EagleVersion::kEagle;
  LayerStyle style = LayerStyle::kLlama;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;        ///< the target's
  int64_t draft_vocab_size = 0;  ///< tokens that have logits: rows of EAGLE-3's lm_head
  double rms_norm_eps = 1e-6;
  LayerPlan plan;                         ///< of the (first) layer
  std::optional<Llama3Rope> llama3_rope;  ///< what plan.rope.divisors were made of
  bool fc_bias = true;                    ///< `bias`; EAGLE-3 has none
  bool scale_embedding = false;           ///< the target's embedding as its first layer sees it
  bool feature_after_norm = true;  ///< EAGLE: features are taken after the target's final norm
  // EAGLE-3, as speculators trains it (its defaults, and EAGLE-3.1, arXiv:2605.09992):
  bool norm_before_residual = false;  ///< the residual stream begins with the normed feature
  bool norm_before_fc = false;        ///< the concatenated streams are normed as one
  bool fc_norm = false;               ///< each captured stream is normed by itself
  bool norm_output = false;           ///< what recurs is the output after the head's norm
  bool own_embedding = false;         ///< `embed_requires_grad`: not the target's; P-EAGLE always
  double soft_cap = 0.0;              ///< of the logits, DeepSpec's Gemma 4 heads; 0 = none
  // P-EAGLE:
  int64_t layers = 1;    ///< those after the first read its output alone
  Token mask_token = 0;  ///< of the drafts after the first
  int64_t drafts = 8;    ///< most tokens of a draft
  /// EAGLE-3: the fused residual streams, by the layer after which they are taken. Published ids
  /// count by a layer's input: see docs/eagle.md.
  std::vector<int64_t> capture_layers;
  HeadTarget trained_for;
};

/// Reads `folder`/config.json of a head; checks it as far as that goes without the target. Throws
/// WeightsError naming file and key: also for a head of the other version, or of another kind.
EagleConfig load_eagle_config(const std::filesystem::path& folder, EagleVersion version);
/// The text of a config.json that load_eagle_config reads back as it was.
std::string eagle_config_json(const EagleConfig& config);

/// Throws WeightsError when the head cannot serve a target of this config.
void check_eagle_config(const EagleConfig& config, const TransformerConfig& target,
                        const std::filesystem::path& folder);

/// The target's layers whose residual streams the head is fed, concatenated; empty: the final
/// hidden state after its norm.
std::vector<int64_t> eagle_capture_layers(const EagleConfig& config,
                                          const TransformerConfig& target);

/// A head of the usual shape for a target: what training starts from. `num_heads` etc. as the
/// target's layers; EAGLE-3 captures three layers, low, middle and high.
EagleConfig make_eagle_config(EagleVersion version, LayerStyle style,
                              const TransformerInfo& target);

}  // namespace specdec
