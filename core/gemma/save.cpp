#include "core/gemma/save.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "core/formats/atomic_file.h"

namespace specdec {
namespace {

/// Collects a checkpoint's tensors under their names, in the dtype to be stored.
class CheckpointWriter {
 public:
  CheckpointWriter(DType dtype, at::ScalarType scalar) : dtype_(dtype), scalar_(scalar) {}

  void add(const std::string& name, const at::Tensor& tensor) {
    kept_.push_back(tensor.detach().to(at::kCPU, scalar_).contiguous());
    const at::Tensor& stored = kept_.back();
    list_.push_back({name,
                     dtype_,
                     stored.sizes().vec(),
                     {static_cast<const std::byte*>(stored.const_data_ptr()), stored.nbytes()}});
  }
  void add_norm(const std::string& name, const at::Tensor& scale) { add(name, scale - 1.0); }

  void add_layer(const std::string& name, const GemmaLayerWeights& layer, const LayerPlan& plan) {
    const int64_t q_rows = plan.heads * plan.head_dim;
    const int64_t kv_rows = plan.kv_heads * plan.head_dim;
    const auto qkv = layer.qkv.split_with_sizes({q_rows, kv_rows, kv_rows}, 0);
    const auto gate_up = layer.gate_up.chunk(2, 0);
    add(name + "self_attn.q_proj.weight", qkv[0]);
    add(name + "self_attn.k_proj.weight", qkv[1]);
    add(name + "self_attn.v_proj.weight", qkv[2]);
    add(name + "self_attn.o_proj.weight", layer.output);
    add(name + "mlp.gate_proj.weight", gate_up[0]);
    add(name + "mlp.up_proj.weight", gate_up[1]);
    add(name + "mlp.down_proj.weight", layer.down);
    add_norm(name + "input_layernorm.weight", layer.attention_norm);
    if (plan.post_norms) {
      add_norm(name + "post_attention_layernorm.weight", layer.attention_post_norm);
      add_norm(name + "pre_feedforward_layernorm.weight", layer.mlp_norm);
      add_norm(name + "post_feedforward_layernorm.weight", layer.mlp_post_norm);
    } else {
      add_norm(name + "post_attention_layernorm.weight", layer.mlp_norm);
    }
    if (plan.qk_norm) {
      add_norm(name + "self_attn.q_norm.weight", layer.q_norm);
      add_norm(name + "self_attn.k_norm.weight", layer.k_norm);
    }
  }

  void write(const std::filesystem::path& path) const {
    write_safetensors(path, list_, {{"format", "pt"}});
  }

 private:
  DType dtype_;
  at::ScalarType scalar_;
  std::vector<at::Tensor> kept_;
  std::vector<TensorToWrite> list_;
};

}  // namespace

void save_gemma(const GemmaWeights& weights, const std::filesystem::path& folder,
                at::ScalarType dtype) {
  SPECDEC_CHECK(dtype == at::kFloat || dtype == at::kBFloat16, "save_gemma: float32 or bfloat16");
  std::filesystem::create_directories(folder);
  const bool narrow = dtype == at::kBFloat16;
  CheckpointWriter writer(narrow ? DType::kBF16 : DType::kF32, dtype);
  writer.add("model.embed_tokens.weight", weights.embedding);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    writer.add_layer(fmt::format("model.layers.{}.", i), weights.layers[i], weights.plan[i]);
  }
  writer.add_norm("model.norm.weight", weights.final_norm);
  if (!weights.config.tie_word_embeddings) {
    writer.add("lm_head.weight", weights.head);
  }
  writer.write(folder / "model.safetensors");
  GemmaConfig config = weights.config;
  config.dtype = narrow ? "bfloat16" : "float32";
  write_file(folder / "config.json", gemma_config_json(config));
}

}  // namespace specdec
