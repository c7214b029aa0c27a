#include "core/transformer/layer_tensors.h"

#include <ATen/ATen.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"

namespace specdec {
namespace {

using Part = std::pair<const char*, int64_t>;

/// Tensors that become a matrix, with their rows.
struct Whole {
  std::vector<std::pair<std::string, int64_t>> tensors;
  int64_t columns;
};

Tensor begin(const Whole& whole, const TensorSource& source, const MatrixFormat& format,
             const Tensor* /*type*/) {
  int64_t rows = 0;
  for (const auto& [name, count] : whole.tensors) {
    rows += count;
  }
  return at::empty({rows, whole.columns}, at::TensorOptions(format.dtype).device(source.device()));
}

MatrixSize begin(const Whole& whole, const TensorSource& source, const MatrixFormat& format,
                 const MatrixSize* /*type*/) {
  std::vector<LinearPart> parts;
  for (const auto& [name, count] : whole.tensors) {
    const auto stored = format.as_stored ? source.stored_format(name) : std::nullopt;
    const WeightFormat here = stored.value_or(weight_format(format.dtype));
    if (!parts.empty() && parts.back().format == here) {
      parts.back().out += count;
    } else {
      parts.push_back({.out = count, .format = here});
    }
  }
  return {parts, whole.columns};
}

Linear begin(const Whole& whole, const TensorSource& source, const MatrixFormat& format,
             const Linear* /*type*/) {
  const MatrixSize size = begin(whole, source, format, static_cast<const MatrixSize*>(nullptr));
  return {size.parts, size.columns, source.device()};
}

template <class Matrix>
Matrix load_whole(TensorSource& source, const Whole& whole, const MatrixFormat& format) {
  for (const auto& [name, rows] : whole.tensors) {  // before memory is taken for them
    source.stored(name, {rows, whole.columns});
  }
  auto matrix = begin(whole, source, format, static_cast<const Matrix*>(nullptr));
  if constexpr (!std::is_same_v<Matrix, MatrixSize>) {
    int64_t first = 0;
    for (const auto& [name, rows] : whole.tensors) {
      source.copy_into(matrix, first, name, {rows, whole.columns});
      first += rows;
    }
  }
  return matrix;
}

void set_bias(Tensor& /*matrix*/, const Tensor& /*bias*/) {}

void set_bias(MatrixSize& /*matrix*/, const Tensor& /*bias*/) {}

void set_bias(Linear& matrix, const Tensor& bias) { matrix.set_bias(bias); }

template <class Matrix>
class LayerLoader {
 public:
  LayerLoader(TensorSource& source, const LayerFormat& format, const MatrixFormat& matrices)
      : source_(source), format_(format), matrices_(matrices) {}

  Matrix fused(const std::vector<Part>& parts, int64_t columns) const {
    Whole whole{.tensors = {}, .columns = columns};
    for (const auto& [part, count] : parts) {
      whole.tensors.emplace_back(format_.prefix + part + ".weight", count);
    }
    return load_whole<Matrix>(source_, whole, matrices_);
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
    return source_.load(format_.prefix + part + ".weight", {size}, compute_dtype()) +
           format_.norm_offset;
  }

 private:
  at::ScalarType compute_dtype() const {
    return matrices_.dtype == at::kDouble ? at::kDouble : at::kFloat;
  }

  TensorSource& source_;
  const LayerFormat& format_;
  const MatrixFormat& matrices_;
};

}  // namespace

template <class Matrix>
LayerOf<Matrix> load_layer(TensorSource& source, const LayerFormat& format, const LayerPlan& plan,
                           int64_t hidden_size, const MatrixFormat& matrices) {
  const LayerLoader<Matrix> loader(source, format, matrices);
  const int64_t q_rows = plan.heads * plan.head_dim;
  const int64_t kv_rows = plan.kv_heads * plan.head_dim;
  const int64_t mlp_rows = plan.intermediate_size;
  LayerOf<Matrix> layer;
  const std::vector<Part> qkv = {
      {"self_attn.q_proj", q_rows}, {"self_attn.k_proj", kv_rows}, {"self_attn.v_proj", kv_rows}};
  const std::vector<Part> output = {{"self_attn.o_proj", hidden_size}};
  const std::vector<Part> gate_up = {{"mlp.gate_proj", mlp_rows}, {"mlp.up_proj", mlp_rows}};
  const std::vector<Part> down = {{"mlp.down_proj", hidden_size}};
  layer.qkv = loader.fused(qkv, plan.joined_inputs ? 2 * hidden_size : hidden_size);
  layer.output = loader.fused(output, q_rows);
  layer.gate_up = loader.fused(gate_up, hidden_size);
  layer.down = loader.fused(down, mlp_rows);
  loader.biases(plan.qkv_bias, qkv, layer.qkv, layer.qkv_bias);
  loader.biases(plan.output_bias, output, layer.output, layer.output_bias);
  loader.biases(plan.mlp_bias, gate_up, layer.gate_up, layer.gate_up_bias);
  loader.biases(plan.mlp_bias, down, layer.down, layer.down_bias);
  if (!format.attention_norm.empty()) {
    layer.attention_norm = loader.norm(format.attention_norm, hidden_size);
  }
  if (plan.post_norms) {
    layer.attention_post_norm = loader.norm("post_attention_layernorm", hidden_size);
    layer.mlp_norm = loader.norm("pre_feedforward_layernorm", hidden_size);
    layer.mlp_post_norm = loader.norm("post_feedforward_layernorm", hidden_size);
  } else {
    // In Gemma 1 and Llama this name is the norm BEFORE the MLP.
    layer.mlp_norm = loader.norm("post_attention_layernorm", hidden_size);
  }
  if (plan.qk_norm) {
    layer.q_norm = loader.norm("self_attn.q_norm", plan.head_dim);
    layer.k_norm = loader.norm("self_attn.k_norm", plan.head_dim);
  }
  return layer;
}

template <class Matrix>
Matrix load_matrix(TensorSource& source, const std::string& name, const std::vector<int64_t>& shape,
                   const MatrixFormat& format) {
  return load_whole<Matrix>(source, {{{name, shape[0]}}, shape[1]}, format);
}

template Tensor load_matrix<Tensor>(TensorSource&, const std::string&, const std::vector<int64_t>&,
                                    const MatrixFormat&);
template Linear load_matrix<Linear>(TensorSource&, const std::string&, const std::vector<int64_t>&,
                                    const MatrixFormat&);
template MatrixSize load_matrix<MatrixSize>(TensorSource&, const std::string&,
                                            const std::vector<int64_t>&, const MatrixFormat&);
template LayerOf<MatrixSize> load_layer<MatrixSize>(TensorSource&, const LayerFormat&,
                                                    const LayerPlan&, int64_t, const MatrixFormat&);
template LayerTensors load_layer<Tensor>(TensorSource&, const LayerFormat&, const LayerPlan&,
                                         int64_t, const MatrixFormat&);
template LayerWeights load_layer<Linear>(TensorSource&, const LayerFormat&, const LayerPlan&,
                                         int64_t, const MatrixFormat&);

void write_layer(TensorWriter& writer, const LayerFormat& format, const LayerPlan& plan,
                 const LayerTensors& layer) {
  SPECDEC_CHECK(!plan.qkv_bias && !plan.output_bias && !plan.mlp_bias,
                "write_layer: no family that is written has biases");
  const std::string& name = format.prefix;
  const int64_t q_rows = plan.heads * plan.head_dim;
  const int64_t kv_rows = plan.kv_heads * plan.head_dim;
  const auto qkv = layer.qkv.split_with_sizes({q_rows, kv_rows, kv_rows}, 0);
  const auto gate_up = layer.gate_up.chunk(2, 0);
  const auto add_norm = [&](const std::string& part, const Tensor& scale) {
    writer.add(name + part + ".weight", scale - format.norm_offset);
  };
  writer.add(name + "self_attn.q_proj.weight", qkv[0]);
  writer.add(name + "self_attn.k_proj.weight", qkv[1]);
  writer.add(name + "self_attn.v_proj.weight", qkv[2]);
  writer.add(name + "self_attn.o_proj.weight", layer.output);
  writer.add(name + "mlp.gate_proj.weight", gate_up[0]);
  writer.add(name + "mlp.up_proj.weight", gate_up[1]);
  writer.add(name + "mlp.down_proj.weight", layer.down);
  if (!format.attention_norm.empty()) {
    add_norm(format.attention_norm, layer.attention_norm);
  }
  if (plan.post_norms) {
    add_norm("post_attention_layernorm", layer.attention_post_norm);
    add_norm("pre_feedforward_layernorm", layer.mlp_norm);
    add_norm("post_feedforward_layernorm", layer.mlp_post_norm);
  } else {
    add_norm("post_attention_layernorm", layer.mlp_norm);
  }
  if (plan.qk_norm) {
    add_norm("self_attn.q_norm", layer.q_norm);
    add_norm("self_attn.k_norm", layer.k_norm);
  }
}

}  // namespace specdec
