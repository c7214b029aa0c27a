#include "core/families/convert/gguf_entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/families/llama/llama3_scaling.h"

namespace specdec {
namespace {

struct FamilyName {
  const char* family;
  const char* architecture;
};
constexpr FamilyName kFamilyNames[] = {
    {"gemma", "gemma"},   {"gemma2", "gemma2"}, {"gemma3_text", "gemma3"}, {"llama", "llama"},
    {"mistral", "llama"}, {"qwen2", "qwen2"},   {"qwen3", "qwen3"}};

class EntryWriter {
 public:
  EntryWriter(const ModelDescription& model, std::string architecture,
              std::vector<std::string>& notes)
      : model_(model),
        first_(model.plan.front()),
        architecture_(std::move(architecture)),
        gemma_(architecture_.rfind("gemma", 0) == 0),
        notes_(notes) {}

  GgufEntries write() {
    entries_.emplace_back("general.architecture", architecture_);
    write_sizes();
    write_rope();
    write_windows();
    if (gemma_) {
      write_gemma();
    }
    return std::move(entries_);
  }

 private:
  void add(const char* key, GgufEntry value) {
    entries_.emplace_back(fmt::format("{}.{}", architecture_, key), std::move(value));
  }

  void write_sizes() {
    const TransformerConfig& config = model_.config;
    add("context_length", config.max_position_embeddings);
    add("embedding_length", config.hidden_size);
    add("block_count", config.num_layers);
    add("feed_forward_length", first_.intermediate_size);
    add("attention.head_count", first_.heads);
    add("attention.head_count_kv", first_.kv_heads);
    add("attention.key_length", first_.head_dim);
    add("attention.value_length", first_.head_dim);
    add("attention.layer_norm_rms_epsilon", config.rms_norm_eps);
    add("vocab_size", config.vocab_size);
    if (!gemma_) {
      add("rope.dimension_count", first_.head_dim);
    }
  }

  /// The layer whose rotation is that of the model: one that sees everything.
  const LayerPlan& global_layer() const {
    const auto full = std::find_if(model_.plan.begin(), model_.plan.end(),
                                   [](const LayerPlan& layer) { return layer.window == 0; });
    return full == model_.plan.end() ? first_ : *full;
  }

  void write_rope() {
    const RopeConfig& rope = global_layer().rope;
    add("rope.freq_base", rope.theta);
    if (rope.factor != 1.0) {
      add("rope.scaling.type", std::string("linear"));
      add("rope.scaling.factor", rope.factor);
    }
    if (!rope.divisors.empty() &&
        !find_llama3(rope, first_.head_dim, model_.config.max_position_embeddings)) {
      notes_.emplace_back(
          "its rotary scaling becomes a table of frequencies (rope_freqs.weight), from which no "
          "config.json can be made again");
    }
  }

  void write_windows() {
    std::vector<bool> sliding;
    for (const LayerPlan& layer : model_.plan) {
      sliding.push_back(layer.window > 0);
    }
    const bool windowed = std::find(sliding.begin(), sliding.end(), true) != sliding.end();
    if (!windowed && architecture_ != "gemma2") {  // Gemma 2 without keys has windows
      return;
    }
    if (windowed) {
      add("attention.sliding_window", model_.config.sliding_window);
    }
    if (!gemma_) {
      notes_.push_back(fmt::format(
          "llama.cpp knows no sliding window in architecture {}: texts of more than {} tokens "
          "differ there",
          architecture_, model_.config.sliding_window));
    }
    if (const int64_t period = period_of(sliding); gemma_ && period > 0) {
      add("attention.sliding_window_pattern", period);
    } else {
      add("attention.sliding_window_pattern", sliding);
    }
  }

  /// p where every p-th layer, and no other, is full; 0 = none.
  static int64_t period_of(const std::vector<bool>& sliding) {
    const auto full = std::find(sliding.begin(), sliding.end(), false) - sliding.begin();
    for (size_t layer = 0; layer < sliding.size(); ++layer) {
      if (sliding[layer] != ((static_cast<int64_t>(layer) + 1) % (full + 1) != 0)) {
        return 0;
      }
    }
    return full + 1;
  }

  void write_gemma() {
    for (const LayerPlan& layer : model_.plan) {
      if (architecture_ == "gemma3" && layer.window > 0) {
        add("rope.freq_base_swa", layer.rope.theta);
        break;
      }
    }
    if (first_.soft_cap != 0.0) {
      add("attn_logit_softcapping", first_.soft_cap);
    }
    if (model_.config.final_soft_cap != 0.0) {
      add("final_logit_softcapping", model_.config.final_soft_cap);
    }
    const bool largest = model_.config.num_layers == (architecture_ == "gemma2" ? 46 : 62) &&
                         architecture_ != "gemma";
    const int64_t scalar = largest ? model_.config.hidden_size / first_.heads : first_.head_dim;
    if (std::abs(query_scalar(first_.query_scale) - static_cast<double>(scalar)) > 1e-9) {
      add("attention.scale", first_.query_scale);
      notes_.push_back(fmt::format(
          "llama.cpp takes {} as query_pre_attn_scalar of such a model, not {}: its results differ",
          scalar, query_scalar(first_.query_scale)));
    }
  }

  const ModelDescription& model_;
  const LayerPlan& first_;
  std::string architecture_;
  bool gemma_;
  std::vector<std::string>& notes_;
  GgufEntries entries_;
};

}  // namespace

std::string gguf_architecture(const ModelDescription& model, const std::string& where) {
  if (model.config.bidirectional) {
    throw WeightsError(fmt::format(
        "{}: is an encoder (bidirectional attention), which is not converted to GGUF.", where));
  }
  for (const FamilyName& known : kFamilyNames) {
    if (model.config.family == known.family) {
      return known.architecture;
    }
  }
  throw WeightsError(
      fmt::format("{}: GGUF has no architecture for the family '{}' that is known here.", where,
                  model.config.family));
}

GgufEntries gguf_entries(const ModelDescription& model, const std::string& where,
                         std::vector<std::string>& notes) {
  return EntryWriter(model, gguf_architecture(model, where), notes).write();
}

}  // namespace specdec
