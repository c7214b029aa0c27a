#pragma once
#include <filesystem>
#include <fstream>
#include <string>

#include "core/transformer/random_weights.h"
#include "core/transformer/tensor_writer.h"

namespace specdec {

/// Writes the checkpoint of a random Llama without a tokenizer: 3 layers, hidden size 32.
inline void write_tiny_llama(const std::filesystem::path& folder, int64_t vocab,
                             uint64_t seed = 1) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json")
      << R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
             "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1,
             "head_dim": 16, "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
             "tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 1, "vocab_size": )"
      << vocab << "}";
  RandomTensors random({.seed = seed, .dtype = at::kFloat});
  TensorWriter writer(at::kFloat);
  writer.add("model.embed_tokens.weight", random.matrix(vocab, 32));
  writer.add("model.norm.weight", random.norm(32));
  for (int layer = 0; layer < 3; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    writer.add(prefix + "input_layernorm.weight", random.norm(32));
    writer.add(prefix + "post_attention_layernorm.weight", random.norm(32));
    writer.add(prefix + "self_attn.q_proj.weight", random.matrix(32, 32));
    writer.add(prefix + "self_attn.k_proj.weight", random.matrix(16, 32));
    writer.add(prefix + "self_attn.v_proj.weight", random.matrix(16, 32));
    writer.add(prefix + "self_attn.o_proj.weight", random.matrix(32, 32));
    writer.add(prefix + "mlp.gate_proj.weight", random.matrix(64, 32));
    writer.add(prefix + "mlp.up_proj.weight", random.matrix(64, 32));
    writer.add(prefix + "mlp.down_proj.weight", random.matrix(32, 64));
  }
  writer.write(folder / "model.safetensors");
}

}  // namespace specdec
