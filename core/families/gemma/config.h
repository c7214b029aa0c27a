#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/formats/json_keys.h"
#include "core/transformer/plan.h"
#include "core/types.h"

namespace specdec {

/// Gemma generations that the forward knows.
enum class GemmaFamily { kGemma1, kGemma2, kGemma3 };
/// "gemma", "gemma2", "gemma3_text"
std::string gemma_family_name(GemmaFamily family);

/// The model_types of config.json that load_gemma_config takes.
const std::vector<std::string>& gemma_model_types();

/// What config.json (and generation_config.json) says of a text model, defaults filled in. Reads
/// old (transformers 4) and new (5) styles, and the text part of Gemma 3's multimodal wrapper.
struct GemmaConfig {
  GemmaFamily family = GemmaFamily::kGemma3;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;
  int64_t max_position_embeddings = 8192;
  bool tie_word_embeddings = true;
  double query_scale = 0.0;         ///< multiplies q.k: head_dim^-1/2 or query_pre_attn_scalar^-1/2
  double attention_soft_cap = 0.0;  ///< Gemma 2; 0 = none
  double final_soft_cap = 0.0;      ///< on the logits; 0 = none
  int64_t sliding_window = 0;
  std::vector<bool> sliding_layers;  ///< [num_layers] true = sees only the window
  RopeConfig local_rope;             ///< of sliding layers
  RopeConfig global_rope;
  bool bidirectional = false;  ///< EmbeddingGemma: an encoder, cannot decode
  std::string dtype;           ///< as stored: "float32", "bfloat16", "float16"; may be ""
  std::vector<Token> end_ids;  ///< eos_token_id of generation_config.json, else config.json
  Token bos_id = 2;
};

/// Reads `folder`/config.json. Throws WeightsError naming file and key: not JSON, a missing or
/// mistyped key, a value that makes no sense, an architecture that is not supported.
GemmaConfig load_gemma_config(const std::filesystem::path& folder);
/// The same from the text of config.json; `where` names it in messages, `names` its keys.
GemmaConfig parse_gemma_config(const std::string& text, const std::string& where,
                               const KeyNames& names = {});
/// The text of a config.json, in the new style, that parse_gemma_config reads back as it was.
std::string gemma_config_json(const GemmaConfig& config);

}  // namespace specdec
