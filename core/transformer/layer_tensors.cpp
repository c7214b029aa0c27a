#include "core/transformer/layer_tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/transformer/decay_parameter.h"

namespace specdec {
namespace {

using Part = std::pair<const char*, int64_t>;

template <class Matrix>
class LayerLoader {
 public:
  LayerLoader(TensorSource& source, const LayerFormat& format, const MatrixFormat& matrices)
      : source_(source), format_(format), matrices_(matrices) {}

  using Named = std::vector<std::pair<std::string, int64_t>>;

  Matrix fused(const std::vector<Part>& parts, int64_t columns) const {
    Named tensors;
    for (const auto& [part, count] : parts) {
      tensors.emplace_back(std::string(part) + ".weight", count);
    }
    return named(tensors, columns);
  }

  /// Loads the biases of a fused matrix, if it has any, and gives them to it.
  void biases(bool present, const std::vector<Part>& parts, Matrix& matrix, Tensor& out) const {
    if (!present) {
      return;
    }
    std::vector<Tensor> all;
    for (const auto& [part, count] : parts) {
      all.push_back(source_.load(format_.prefix + part + ".bias", {count}, compute_dtype()));
    }
    out = at::cat(all);
    set_bias(matrix, out);
  }

  Tensor norm(const std::string& part, int64_t size) const {
    return numbers(part + ".weight", {size}) + format_.norm_offset;
  }

  /// In the compute dtype.
  Tensor numbers(const std::string& name, const std::vector<int64_t>& shape) const {
    return source_.load(format_.prefix + name, shape, compute_dtype());
  }
  Matrix compute_matrix(const std::string& name, const std::vector<int64_t>& shape) const {
    return load_matrix<Matrix>(source_, format_.prefix + name, shape, compute_dtype());
  }

  // By whole names, without ".weight".
  Matrix named(const Named& parts, int64_t columns) const {
    return load_joined<Matrix>(source_, joined(parts, columns), matrices_);
  }
  std::vector<Matrix> stack(const Named& parts, int64_t columns, int64_t count) const {
    const JoinedTensors one = joined(parts, columns);
    return load_stack<Matrix>(source_, one, count, stack_format({&one, 1}));
  }
  /// A stack whose matrices have names of their own.
  std::vector<Matrix> stack(const std::vector<Named>& matrices, int64_t columns) const {
    std::vector<JoinedTensors> all;
    for (const Named& parts : matrices) {
      all.push_back(joined(parts, columns));
    }
    const MatrixFormat format = stack_format(all);
    std::vector<Matrix> stack;
    for (const JoinedTensors& one : all) {
      stack.push_back(load_joined<Matrix>(source_, one, format));
    }
    return stack;
  }

  bool has(const std::string& name) const { return source_.has(format_.prefix + name); }
  void skip(const std::string& name, const std::vector<int64_t>& shape) const {
    source_.skip(format_.prefix + name, shape);
  }

 private:
  /// Experts' matrices lie one after another on a device, so they have one format there: that of
  /// the file, or, where it has several, the dtype that is not stored.
  MatrixFormat stack_format(std::span<const JoinedTensors> matrices) const {
    std::set<WeightFormat> formats;
    for (const JoinedTensors& one : matrices) {
      for (const LinearPart& part : size_of(one, source_, matrices_).parts) {
        formats.insert(part.format);
      }
    }
    MatrixFormat format = matrices_;
    format.as_stored &= source_.place().layout == WeightLayout::kPanels || formats.size() == 1;
    return format;
  }

  JoinedTensors joined(const Named& parts, int64_t columns) const {
    JoinedTensors one{.tensors = parts, .columns = columns};
    for (auto& [name, rows] : one.tensors) {
      name = format_.prefix + name;
    }
    return one;
  }
  at::ScalarType compute_dtype() const {
    return matrices_.dtype == at::kDouble ? at::kDouble : at::kFloat;
  }

  TensorSource& source_;
  const LayerFormat& format_;
  const MatrixFormat& matrices_;
};

/// Loads the parts of one layer.
template <class Matrix>
class LayerParts {
 public:
  LayerParts(TensorSource& source, const LayerFormat& format, const LayerPlan& plan,
             int64_t hidden_size, const MatrixFormat& matrices)
      : loader_(source, format, matrices), format_(format), plan_(plan), hidden_(hidden_size) {}

  /// In this order, which fingerprints of models depend on.
  LayerOf<Matrix> load() {
    load_matrices();
    load_norms();
    if (is_recurrent(plan_)) {
      load_recurrence();
    } else {
      load_head_norms();
    }
    if (plan_.layer_scalar && loader_.has("layer_scalar")) {
      const Tensor scalar = loader_.numbers("layer_scalar", {1});
      layer_.scalar = scalar.is_meta() ? 1.0 : scalar.template item<double>();
    }
    if (plan_.experts.count > 0) {
      load_experts();
    }
    if (plan_.per_layer_size > 0) {
      load_per_layer();
    }
    if (plan_.laurel_rank > 0) {
      load_laurel();
    }
    if (plan_.altup.streams > 0) {
      load_altup();
    }
    visit_shared_matrices(layer_, [](Matrix& matrix) { arrange(matrix); });
    return std::move(layer_);
  }

 private:
  /// Of the fused matrix that attention, or a recurrent block, begins with.
  std::vector<Part> first_parts() const {
    if (is_recurrent(plan_)) {
      return {{"temporal_block.linear_y", query_rows(plan_)},
              {"temporal_block.linear_x", query_rows(plan_)}};
    }
    std::vector<Part> qkv = {{"self_attn.q_proj", query_rows(plan_)}};
    const int64_t own = kv_projections(plan_);
    if (own > 0) {
      qkv.emplace_back("self_attn.k_proj", kv_rows(plan_));
    }
    if (own > 1) {
      qkv.emplace_back("self_attn.v_proj", kv_rows(plan_));
    }
    return qkv;
  }

  void load_matrices() {
    const std::vector<Part> qkv = first_parts();
    const int64_t mlp_rows = plan_.intermediate_size;
    const std::vector<Part> output = {
        {is_recurrent(plan_) ? "temporal_block.linear_out" : "self_attn.o_proj", hidden_}};
    const std::vector<Part> gate_up = {{"mlp.gate_proj", mlp_rows}, {"mlp.up_proj", mlp_rows}};
    const std::vector<Part> down = {{"mlp.down_proj", hidden_}};
    layer_.qkv = loader_.fused(qkv, plan_.joined_inputs ? 2 * hidden_ : hidden_);
    layer_.output = loader_.fused(output, query_rows(plan_));
    layer_.gate_up = loader_.fused(gate_up, hidden_);
    layer_.down = loader_.fused(down, mlp_rows);
    loader_.biases(plan_.qkv_bias, qkv, layer_.qkv, layer_.qkv_bias);
    loader_.biases(plan_.output_bias, output, layer_.output, layer_.output_bias);
    loader_.biases(plan_.mlp_bias, gate_up, layer_.gate_up, layer_.gate_up_bias);
    loader_.biases(plan_.mlp_bias, down, layer_.down, layer_.down_bias);
  }

  void load_head_norms() {
    const bool own = kv_projections(plan_) > 0;
    if (plan_.qk_norm) {
      layer_.q_norm = loader_.norm("self_attn.q_norm", plan_.head_dim);
    }
    if (plan_.qk_norm && own) {
      layer_.k_norm = loader_.norm("self_attn.k_norm", plan_.head_dim);
    }
    if (!own) {  // the hub's files hold them, and nothing reads them
      loader_.skip("self_attn.k_proj.weight", {kv_rows(plan_), hidden_});
      loader_.skip("self_attn.v_proj.weight", {kv_rows(plan_), hidden_});
      loader_.skip("self_attn.k_norm.weight", {plan_.head_dim});
      if (plan_.qkv_bias) {
        loader_.skip("self_attn.k_proj.bias", {kv_rows(plan_)});
        loader_.skip("self_attn.v_proj.bias", {kv_rows(plan_)});
      }
    }
  }

  void load_recurrence() {
    const int64_t channels = query_rows(plan_);
    const int64_t width = plan_.recurrence.convolution_width;
    const std::vector<int64_t> gate = {plan_.heads, plan_.head_dim, plan_.head_dim};
    const auto numbers = [&](const char* name, const std::vector<int64_t>& shape) {
      return loader_.numbers(std::string("temporal_block.") + name, shape);
    };
    const auto bias = [&](const char* name) {
      return numbers(name, {plan_.heads, plan_.head_dim}).flatten();
    };
    RecurrenceTensors& to = layer_.recurrence;
    to.convolution = numbers("conv_1d.weight", {channels, 1, width}).view({channels, width});
    to.convolution = to.convolution.t().contiguous();
    to.convolution_bias = numbers("conv_1d.bias", {channels});
    to.input_gate = numbers("rg_lru.input_gate_weight", gate);
    to.input_gate_bias = bias("rg_lru.input_gate_bias");
    to.decay_gate = numbers("rg_lru.recurrent_gate_weight", gate);
    to.decay_gate_bias = bias("rg_lru.recurrent_gate_bias");
    to.decay = decay_of_parameter(numbers("rg_lru.recurrent_param", {channels}));
  }

  void load_norms() {
    if (!format_.attention_norm.empty()) {
      layer_.attention_norm = loader_.norm(format_.attention_norm, hidden_);
    }
    if (plan_.post_norms) {
      layer_.attention_post_norm = loader_.norm("post_attention_layernorm", hidden_);
      layer_.mlp_norm = loader_.norm("pre_feedforward_layernorm", hidden_);
      layer_.mlp_post_norm = loader_.norm("post_feedforward_layernorm", hidden_);
    } else {
      layer_.mlp_norm = loader_.norm(format_.mlp_norm, hidden_);
    }
  }

  void load_experts() {
    const auto& [count, chosen, size] = plan_.experts;
    ExpertsOf<Matrix>& experts = layer_.experts;
    experts.router = loader_.compute_matrix("router.proj.weight", {count, hidden_});
    experts.router_norm =
        loader_.numbers("router.scale", {hidden_}) / std::sqrt(static_cast<double>(hidden_));
    experts.output_scale = loader_.numbers("router.per_expert_scale", {count});
    load_expert_matrices(count, size, experts);
    for (auto* stack : {&experts.gate_up, &experts.down}) {
      for (Matrix& matrix : *stack) {
        arrange(matrix);
      }
      join_rows(*stack);
    }
    experts.dense_post_norm = loader_.norm("post_feedforward_layernorm_1", hidden_);
    experts.norm = loader_.norm("pre_feedforward_layernorm_2", hidden_);
    experts.post_norm = loader_.norm("post_feedforward_layernorm_2", hidden_);
  }

  /// Stacked, as in the hub's files and MLX's ("switch_glu"), or each by itself, as GGUF's are
  /// named and as quantised folders hold them; gate and up fused or apart.
  void load_expert_matrices(int64_t count, int64_t size, ExpertsOf<Matrix>& experts) const {
    using Named = typename LayerLoader<Matrix>::Named;
    const auto ending = ending_of_single_experts(count);
    const std::string end = ending.value_or("");
    const auto gate_up = [&](const std::string& prefix) {
      const bool apart =
          loader_.has(prefix + "gate_proj" + end) || loader_.has(prefix + "up_proj" + end);
      return apart ? Named{{prefix + "gate_proj" + end, size}, {prefix + "up_proj" + end, size}}
                   : Named{{prefix + "gate_up_proj" + end, 2 * size}};
    };
    if (has_switch_experts()) {
      experts.gate_up = loader_.stack({{"experts.switch_glu.gate_proj.weight", size},
                                       {"experts.switch_glu.up_proj.weight", size}},
                                      hidden_, count);
      experts.down = loader_.stack({{"experts.switch_glu.down_proj.weight", hidden_}}, size, count);
      return;
    }
    if (!ending) {
      experts.gate_up = loader_.stack(gate_up("experts."), hidden_, count);
      experts.down = loader_.stack({{"experts.down_proj", hidden_}}, size, count);
      return;
    }
    std::vector<Named> both;
    std::vector<Named> down;
    for (int64_t e = 0; e < count; ++e) {
      const std::string prefix = fmt::format("experts.{}.", e);
      both.push_back(gate_up(prefix));
      down.push_back({{prefix + "down_proj" + end, hidden_}});
    }
    experts.gate_up = loader_.stack(both, hidden_);
    experts.down = loader_.stack(down, size);
  }

  bool has_switch_experts() const {
    const auto has = [&](const char* part) {
      return loader_.has(fmt::format("experts.switch_glu.{}.weight", part));
    };
    return has("gate_proj") || has("up_proj") || has("down_proj");
  }

  /// What names of matrices end with where each expert has its own: "", or ".weight" as
  /// llm-compressor writes them. None for stacks.
  std::optional<std::string> ending_of_single_experts(int64_t count) const {
    for (int64_t e = 0; e < count; ++e) {
      for (const char* end : {"", ".weight"}) {
        for (const char* part : {"down_proj", "gate_proj", "up_proj", "gate_up_proj"}) {
          if (loader_.has(fmt::format("experts.{}.{}{}", e, part, end))) {
            return end;
          }
        }
      }
    }
    return std::nullopt;
  }

  void load_per_layer() {
    const int64_t size = plan_.per_layer_size;
    layer_.per_layer.gate = loader_.fused({{"per_layer_input_gate", size}}, hidden_);
    layer_.per_layer.projection = loader_.fused({{"per_layer_projection", hidden_}}, size);
    layer_.per_layer.post_norm = loader_.norm("post_per_layer_input_norm", hidden_);
  }

  void load_laurel() {
    const int64_t rank = plan_.laurel_rank;
    layer_.laurel.left = loader_.fused({{"laurel.linear_left", rank}}, hidden_);
    layer_.laurel.right = loader_.fused({{"laurel.linear_right", hidden_}}, rank);
    layer_.laurel.post_norm = loader_.norm("laurel.post_laurel_norm", hidden_);
  }

  void load_altup() {
    const int64_t streams = plan_.altup.streams;
    AltUpTensors& altup = layer_.altup;
    altup.router = loader_.numbers("altup.modality_router.weight", {streams, hidden_});
    altup.router_norm = loader_.norm("altup.router_norm", hidden_) / static_cast<double>(hidden_);
    altup.predict = loader_.numbers("altup.prediction_coefs.weight", {streams * streams, streams});
    altup.correct = loader_.numbers("altup.correction_coefs.weight", {streams, streams});
    if (plan_.altup.correct_scale) {
      altup.output_scale = loader_.numbers("altup.correct_output_scale", {hidden_});
    } else {
      loader_.skip("altup.correct_output_scale", {hidden_});
    }
  }

  LayerLoader<Matrix> loader_;
  const LayerFormat& format_;
  const LayerPlan& plan_;
  int64_t hidden_;
  LayerOf<Matrix> layer_;
};

}  // namespace

template <class Matrix>
LayerOf<Matrix> load_layer(TensorSource& source, const LayerFormat& format, const LayerPlan& plan,
                           int64_t hidden_size, const MatrixFormat& matrices) {
  return LayerParts<Matrix>(source, format, plan, hidden_size, matrices).load();
}

template LayerOf<MatrixSize> load_layer<MatrixSize>(TensorSource&, const LayerFormat&,
                                                    const LayerPlan&, int64_t, const MatrixFormat&);
template LayerTensors load_layer<Tensor>(TensorSource&, const LayerFormat&, const LayerPlan&,
                                         int64_t, const MatrixFormat&);
template LayerWeights load_layer<Linear>(TensorSource&, const LayerFormat&, const LayerPlan&,
                                         int64_t, const MatrixFormat&);

}  // namespace specdec
