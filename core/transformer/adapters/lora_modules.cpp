#include "core/transformer/adapters/lora_modules.h"

#include <fmt/format.h>

namespace specdec {
namespace {

/// Lists the modules of one layer.
class LayerModules {
 public:
  LayerModules(const LayerPlan& plan, const LayerWeights& layer, int64_t index,
               std::vector<LoraModule>& modules)
      : plan_(plan), layer_(layer), index_(index), modules_(modules) {}

  void list() {
    list_attention();
    const int64_t size = plan_.intermediate_size;
    add("mlp.gate_proj", layer_.gate_up, 0, size);
    add("mlp.up_proj", layer_.gate_up, size, size);
    add("mlp.down_proj", layer_.down);
    add("router.proj", layer_.experts.router);
    add("per_layer_input_gate", layer_.per_layer.gate);
    add("per_layer_projection", layer_.per_layer.projection);
    add("laurel.linear_left", layer_.laurel.left);
    add("laurel.linear_right", layer_.laurel.right);
  }

 private:
  void list_attention() {
    const int64_t own = kv_projections(plan_);
    add("self_attn.q_proj", layer_.qkv, 0, query_rows(plan_));
    const char* names[] = {"self_attn.k_proj", "self_attn.v_proj"};
    for (int64_t i = 0; i < 2; ++i) {
      if (own > i) {
        add(names[i], layer_.qkv, query_rows(plan_) + i * kv_rows(plan_), kv_rows(plan_));
      } else if (own == 0) {  // the hub's files hold them, and nothing reads them
        modules_.push_back({.name = full_name(names[i]), .layer = index_});
      }
    }
    add("self_attn.o_proj", layer_.output);
  }

  std::string full_name(const char* name) const {
    return fmt::format("model.layers.{}.{}", index_, name);
  }
  void add(const char* name, const Linear& matrix, int64_t first, int64_t rows) {
    if (matrix.defined()) {
      modules_.push_back({full_name(name), index_, &matrix, first, rows});
    }
  }
  void add(const char* name, const Linear& matrix) { add(name, matrix, 0, matrix.out()); }

  const LayerPlan& plan_;
  const LayerWeights& layer_;
  int64_t index_;
  std::vector<LoraModule>& modules_;
};

}  // namespace

std::vector<LoraModule> lora_modules(const TransformerWeights& weights) {
  std::vector<LoraModule> modules;
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    LayerModules(weights.plan[i], weights.layers[i], static_cast<int64_t>(i), modules).list();
  }
  const auto add = [&modules](std::string name, const Linear& matrix) {
    if (matrix.defined()) {
      modules.push_back({std::move(name), -1, &matrix, 0, matrix.out()});
    }
  };
  add("lm_head", weights.head);
  add("model.per_layer_model_projection", weights.per_layer_projection);
  for (size_t i = 0; i < weights.altup_projections.size(); ++i) {
    add(fmt::format("model.altup_projections.{}", i), weights.altup_projections[i]);
    add(fmt::format("model.altup_unembed_projections.{}", i), weights.altup_unembeddings[i]);
  }
  return modules;
}

std::string lora_module_name(const std::string& path) {
  std::string rest = path;
  for (const std::string prefix :
       {"language_model.model.", "model.language_model.", "language_model.", "model."}) {
    if (path.rfind(prefix, 0) == 0) {
      rest = path.substr(prefix.size());
      break;
    }
  }
  return rest == "lm_head" ? rest : "model." + rest;
}

bool is_other_input(const std::string& path) {
  for (const char* part : {"vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.",
                           "multi_modal_projector.", "vision_model."}) {
    if (path.find(part) != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace specdec
