// A model without files: random tensors in memory, and the text of a config.json: own_tensors
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"
#include "core/formats/memory_tensors.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "kv/paged_kv.h"

using namespace specdec;

namespace {

constexpr const char* kConfig = R"({
  "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
  "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-6, "max_position_embeddings": 128, "tie_word_embeddings": true})";

/// Adds a float32 tensor, which keeps itself alive.
void add_random(MemoryTensors& tensors, const std::string& name, std::vector<int64_t> shape) {
  const auto values = std::make_shared<Tensor>(at::randn(shape) * 0.2);
  tensors.add(
      {.name = name,
       .dtype = DType::kF32,
       .shape = std::move(shape),
       .bytes = {static_cast<const std::byte*>(values->const_data_ptr()), values->nbytes()}},
      values);
}

std::shared_ptr<const MemoryTensors> make_tensors() {
  auto tensors = std::make_shared<MemoryTensors>("my model");
  add_random(*tensors, "model.embed_tokens.weight", {64, 32});
  add_random(*tensors, "model.norm.weight", {32});
  const std::string layer = "model.layers.0.";
  for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
    add_random(*tensors, layer + norm, {32});
  }
  add_random(*tensors, layer + "self_attn.q_proj.weight", {32, 32});
  add_random(*tensors, layer + "self_attn.k_proj.weight", {16, 32});
  add_random(*tensors, layer + "self_attn.v_proj.weight", {16, 32});
  add_random(*tensors, layer + "self_attn.o_proj.weight", {32, 32});
  add_random(*tensors, layer + "mlp.gate_proj.weight", {48, 32});
  add_random(*tensors, layer + "mlp.up_proj.weight", {48, 32});
  add_random(*tensors, layer + "mlp.down_proj.weight", {32, 48});
  return tensors;
}

void generate() {
  const c10::InferenceMode guard;
  at::manual_seed(1);
  const auto weights = load_model(open_model(kConfig, make_tensors()));
  TransformerModel model(weights, paged_kv());
  CounterRandomness random(0);
  const std::vector<Token> prompt = {2, 5, 7};
  const Request request{
      .prompt = prompt, .sampling = {}, .stop = {.max_new_tokens = 8}, .random = random};
  const Generation generation = AutoregressiveDecoding(model).generate(request);
  std::cout << generation.tokens.size() << " tokens:";
  for (const Token token : generation.tokens) {
    std::cout << ' ' << token;
  }
  std::cout << '\n';
}

}  // namespace

int main() {
  try {
    generate();
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
  return 0;
}
