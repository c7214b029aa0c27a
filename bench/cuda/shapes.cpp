#include "bench/cuda/shapes.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace specdec::cuda {

ModelShape read_shape(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name + "/config.json";
  std::ifstream file(path);
  const nlohmann::json config = nlohmann::json::parse(file, nullptr, false);
  if (config.is_discarded()) {
    std::fprintf(stderr, "cuda_kernels_bench: %s: cannot be read\n", path.c_str());
    std::exit(2);
  }
  const auto number = [&](const char* key) { return config.value(key, 0); };
  return {name,
          number("hidden_size"),
          number("intermediate_size"),
          number("num_hidden_layers"),
          number("num_attention_heads"),
          number("num_key_value_heads"),
          number("head_dim"),
          number("vocab_size"),
          number("sliding_window"),
          number("num_experts"),
          number("top_k_experts"),
          number("moe_intermediate_size")};
}

std::vector<MatrixShape> matrices_of(const ModelShape& shape) {
  const int32_t queries = shape.heads * shape.head_dim;
  return {{"qkv", queries + 2 * shape.kv_heads * shape.head_dim, shape.hidden, shape.layers},
          {"o", shape.hidden, queries, shape.layers},
          {"gate_up", 2 * shape.intermediate, shape.hidden, shape.layers},
          {"down", shape.hidden, shape.intermediate, shape.layers},
          {"logits", shape.vocab, shape.hidden, 1}};
}

std::vector<MatrixShape> expert_matrices_of(const ModelShape& shape) {
  return {{"experts_gate_up", 2 * shape.expert_size, shape.hidden, shape.layers},
          {"experts_down", shape.hidden, shape.expert_size, shape.layers}};
}

}  // namespace specdec::cuda
