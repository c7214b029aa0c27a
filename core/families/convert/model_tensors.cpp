#include "core/families/convert/model_tensors.h"

#include <fmt/format.h>

namespace specdec {
namespace {

class TensorLister {
 public:
  explicit TensorLister(const ModelDescription& model) : model_(model) {}

  std::vector<ModelTensor> list() {
    const std::vector<int64_t> table = {model_.config.vocab_size, model_.config.hidden_size};
    add({.name = "model.embed_tokens.weight", .shape = table});
    for (size_t i = 0; i < model_.plan.size(); ++i) {
      add_layer(fmt::format("model.layers.{}.", i), model_.plan[i]);
    }
    add_norm("model.norm", model_.config.hidden_size);
    if (!model_.config.tie_word_embeddings) {
      add({.name = "lm_head.weight", .shape = table});
    }
    return std::move(all_);
  }

 private:
  void add(ModelTensor tensor) { all_.push_back(std::move(tensor)); }

  void add_norm(const std::string& name, int64_t size) {
    add({.name = name + ".weight", .shape = {size}, .is_norm = true});
  }

  void add_matrix(const std::string& name, std::vector<int64_t> shape, bool bias,
                  int64_t head_dim = 0) {
    const int64_t rows = shape[0];
    add({.name = name + ".weight", .shape = std::move(shape), .head_dim = head_dim});
    if (bias) {
      add({.name = name + ".bias", .shape = {rows}, .head_dim = head_dim});
    }
  }

  void add_layer(const std::string& prefix, const LayerPlan& plan) {
    const int64_t hidden = model_.config.hidden_size;
    const int64_t queries = query_rows(plan);
    const int64_t keys = kv_rows(plan);
    add_norm(prefix + "input_layernorm", hidden);
    add_matrix(prefix + "self_attn.q_proj", {queries, hidden}, plan.qkv_bias, plan.head_dim);
    add_matrix(prefix + "self_attn.k_proj", {keys, hidden}, plan.qkv_bias, plan.head_dim);
    add_matrix(prefix + "self_attn.v_proj", {keys, hidden}, plan.qkv_bias);
    add_matrix(prefix + "self_attn.o_proj", {hidden, queries}, plan.output_bias);
    if (plan.qk_norm) {
      add_norm(prefix + "self_attn.q_norm", plan.head_dim);
      add_norm(prefix + "self_attn.k_norm", plan.head_dim);
    }
    add_norm(prefix + (plan.post_norms ? "post_attention_layernorm" : model_.mlp_norm), hidden);
    if (plan.post_norms) {
      add_norm(prefix + "pre_feedforward_layernorm", hidden);
      add_norm(prefix + "post_feedforward_layernorm", hidden);
    }
    add_matrix(prefix + "mlp.gate_proj", {plan.intermediate_size, hidden}, plan.mlp_bias);
    add_matrix(prefix + "mlp.up_proj", {plan.intermediate_size, hidden}, plan.mlp_bias);
    add_matrix(prefix + "mlp.down_proj", {hidden, plan.intermediate_size}, plan.mlp_bias);
  }

  const ModelDescription& model_;
  std::vector<ModelTensor> all_;
};

}  // namespace

std::vector<ModelTensor> model_tensors(const ModelDescription& model) {
  return TensorLister(model).list();
}

}  // namespace specdec
