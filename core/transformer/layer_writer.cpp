#include "core/transformer/layer_writer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "core/error.h"
#include "core/transformer/decay_parameter.h"

namespace specdec {
namespace {

class LayerWriter {
 public:
  LayerWriter(TensorWriter& writer, const LayerFormat& format, const LayerPlan& plan,
              const LayerTensors& layer)
      : writer_(writer), format_(format), plan_(plan), layer_(layer) {}

  void write() const {
    if (is_recurrent(plan_)) {
      write_parts({"temporal_block.linear_y", "temporal_block.linear_x"}, layer_.qkv,
                  layer_.qkv_bias, {query_rows(plan_), query_rows(plan_)});
      write_parts({"temporal_block.linear_out"}, layer_.output, layer_.output_bias);
      write_recurrence();
    } else {
      write_attention();
    }
    const int64_t rows = plan_.intermediate_size;
    write_parts({"mlp.gate_proj", "mlp.up_proj"}, layer_.gate_up, layer_.gate_up_bias,
                {rows, rows});
    write_parts({"mlp.down_proj"}, layer_.down, layer_.down_bias);
    write_norms();
    if (plan_.layer_scalar) {
      add("layer_scalar", at::full({1}, layer_.scalar, layer_.mlp_norm.options()));
    }
    if (plan_.experts.count > 0) {
      write_experts();
    }
  }

 private:
  void add(const std::string& part, const Tensor& tensor) const {
    writer_.add(format_.prefix + part, tensor);
  }
  void add_norm(const std::string& part, const Tensor& scale) const {
    add(part + ".weight", scale - format_.norm_offset);
  }

  /// The parts of a fused matrix, of so many rows, and of its bias if it has one.
  void write_parts(const std::vector<std::string>& names, const Tensor& matrix, const Tensor& bias,
                   std::vector<int64_t> rows = {}) const {
    if (rows.empty()) {
      rows = {matrix.size(0)};
    }
    int64_t first = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      add(names[i] + ".weight", matrix.narrow(0, first, rows[i]));
      if (bias.defined()) {
        add(names[i] + ".bias", bias.narrow(0, first, rows[i]));
      }
      first += rows[i];
    }
  }

  void write_attention() const {
    std::vector<std::string> names = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    names.resize(static_cast<size_t>(1 + kv_projections(plan_)));
    std::vector<int64_t> rows(names.size(), kv_rows(plan_));
    rows.front() = query_rows(plan_);
    write_parts(names, layer_.qkv, layer_.qkv_bias, rows);
    write_parts({"self_attn.o_proj"}, layer_.output, layer_.output_bias);
  }

  void write_recurrence() const {
    const RecurrenceTensors& from = layer_.recurrence;
    const auto part = [&](const char* name, const Tensor& tensor) {
      add(std::string("temporal_block.") + name, tensor);
    };
    const auto bias = [&](const char* name, const Tensor& all) {
      part(name, all.view({plan_.heads, plan_.head_dim}));
    };
    part("conv_1d.weight", from.convolution.t().unsqueeze(1));
    part("conv_1d.bias", from.convolution_bias);
    part("rg_lru.input_gate_weight", from.input_gate);
    bias("rg_lru.input_gate_bias", from.input_gate_bias);
    part("rg_lru.recurrent_gate_weight", from.decay_gate);
    bias("rg_lru.recurrent_gate_bias", from.decay_gate_bias);
    part("rg_lru.recurrent_param", parameter_of_decay(from.decay));
  }

  void write_norms() const {
    if (!format_.attention_norm.empty()) {
      add_norm(format_.attention_norm, layer_.attention_norm);
    }
    if (plan_.post_norms) {
      add_norm("post_attention_layernorm", layer_.attention_post_norm);
      add_norm("pre_feedforward_layernorm", layer_.mlp_norm);
      add_norm("post_feedforward_layernorm", layer_.mlp_post_norm);
    } else {
      add_norm(format_.mlp_norm, layer_.mlp_norm);
    }
    if (plan_.qk_norm) {
      add_norm("self_attn.q_norm", layer_.q_norm);
      add_norm("self_attn.k_norm", layer_.k_norm);
    }
  }

  /// Writes the experts as the hub's files hold them: stacked.
  void write_experts() const {
    const ExpertsOf<Tensor>& experts = layer_.experts;
    const double root = std::sqrt(static_cast<double>(experts.norm.numel()));
    add("router.proj.weight", experts.router);
    add("router.scale", experts.router_norm * root);
    add("router.per_expert_scale", experts.output_scale);
    add("experts.gate_up_proj", at::stack(experts.gate_up));
    add("experts.down_proj", at::stack(experts.down));
    add_norm("post_feedforward_layernorm_1", experts.dense_post_norm);
    add_norm("pre_feedforward_layernorm_2", experts.norm);
    add_norm("post_feedforward_layernorm_2", experts.post_norm);
  }

  TensorWriter& writer_;
  const LayerFormat& format_;
  const LayerPlan& plan_;
  const LayerTensors& layer_;
};

}  // namespace

void write_layer(TensorWriter& writer, const LayerFormat& format, const LayerPlan& plan,
                 const LayerTensors& layer) {
  LayerPlan rest = plan;  // beside what Gemma 4's and recurrent layers have
  rest.values = ValueKind::kProjected;
  rest.value_norm = rest.layer_scalar = false;
  rest.experts = {};
  rest.rope.rotated_pairs = 0;
  rest.recurrence = {};
  SPECDEC_CHECK(is_plain(rest), "write_layer: the layer has parts of a family that is not written");
  LayerWriter(writer, format, plan, layer).write();
}

}  // namespace specdec
