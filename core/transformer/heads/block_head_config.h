#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/transformer/heads/head_files.h"
#include "core/transformer/plan.h"

namespace specdec {

/// What makes a block's slots depend on the tokens that were drafted before them.
enum class BlockMethod {
  kDFlash,   ///< nothing: all slots are independent (arXiv:2602.06036)
  kDSpark,   ///< a low-rank bias by the token before (arXiv:2607.05147)
  kDomino,   ///< a bias by a recurrent state of the block's tokens (arXiv:2605.29707)
  kDFlash2,  ///< a choice among a few candidates by the token before, and convolutions in layers
};
/// Name of a method as a drafter's type: "dflash", "dspark", "domino", "dflash2".
const char* block_method_name(BlockMethod method);
/// Method of a drafter's type; nothing for names of other drafters.
std::optional<BlockMethod> find_block_method(const std::string& name);

/// How DSpark's bias follows from the token before and the slot's state (block_correction.h).
enum class MarkovGate { kVanilla, kGated, kRnn };
/// "vanilla", "gated", "rnn"
const char* markov_gate_name(MarkovGate gate);

struct MarkovConfig {
  int64_t rank = 0;  ///< 0 = no bias: DeepSpec's form of DFlash
  MarkovGate gate = MarkovGate::kVanilla;
  bool confidence = false;              ///< a head that predicts whether a draft is accepted
  bool confidence_with_markov = false;  ///< it reads the token before, too
};

struct DominoConfig {
  int64_t state_size = 0;    ///< of the recurrent layer
  int64_t rank = 0;          ///< of the bias
  int64_t plain_drafts = 0;  ///< first drafts, which have none
};

struct DFlash2Config {
  int64_t rank = 0;         ///< of the score of two neighbouring tokens
  int64_t candidates = 0;   ///< tokens of a slot that may be drafted
  int64_t kernel_size = 0;  ///< rows of a block that a convolution reads, the last one its own
  int64_t group_size = 0;   ///< neighbouring numbers of a row that share a kernel
};

/// The config.json of a head that drafts blocks, in the three formats that are published: z-lab's
/// and SpecForge's, DeepSpec's, speculators'.
struct BlockHeadConfig {
  BlockMethod method = BlockMethod::kDFlash;
  int64_t hidden_size = 0;       ///< the target's
  int64_t vocab_size = 0;        ///< the target's
  int64_t draft_vocab_size = 0;  ///< tokens that have logits; vocab_size = all
  double rms_norm_eps = 1e-6;
  std::vector<LayerPlan> plan;
  std::vector<bool> causal;         ///< [layers] whether a row of the block sees only those before
  bool window_from_anchor = false;  ///< all rows of a block see as far back as the first one
  int64_t block_size = 16;          ///< rows, of which the first is the newest committed token
  int64_t first_slot = 1;           ///< the row that gives the first draft
  int64_t drafts = 15;              ///< that rows from there on give, one each
  Token mask_token = 0;             ///< the token of the other rows
  bool own_embedding = false;       ///< not the target's table
  bool own_head = false;            ///< not the target's
  double embedding_scale = 1;       ///< of the table as it is stored
  double output_multiplier = 1;     ///< of the logits before the soft cap
  double soft_cap = 0;              ///< of the draft's logits, which is not the target's; 0 = none
  MarkovConfig markov;
  DominoConfig domino;
  DFlash2Config dflash2;
  /// The target's layers whose outputs it is fed, concatenated; empty = z-lab's choice for a
  /// target.
  std::vector<int64_t> capture_layers;
  const char* layers_key = "target_layer_ids";  ///< that names them in the file
  /// What was fed of the target's last layer in training was normed, which is refused.
  bool last_output_is_normed = true;
  HeadTarget trained_for;
};

/// Reads `folder`/config.json and checks it as far as that goes without the target. Throws
/// WeightsError naming file and key: for what is not supported, and for heads of another kind.
BlockHeadConfig load_block_head_config(const std::filesystem::path& folder);
/// The text of a config.json that load_block_head_config reads back as it was, in z-lab's and
/// SpecForge's format. InternalError for what that cannot say: tables of its own, Gemma 4's layers.
std::string block_head_config_json(const BlockHeadConfig& config);

/// Throws WeightsError when the head cannot serve a target of this config.
void check_block_head_config(const BlockHeadConfig& config, const TransformerConfig& target,
                             const std::filesystem::path& folder);
/// The layers that it captures of this target.
std::vector<int64_t> block_capture_layers(const BlockHeadConfig& config,
                                          const TransformerConfig& target);

/// One for a target, of `layers` layers with the heads of the target's first one: for tests, and
/// where training starts. DFlash's; other methods are added to it.
BlockHeadConfig make_block_head_config(const TransformerInfo& target, int64_t layers,
                                       int64_t block_size);

}  // namespace specdec
