#include "core/transformer/heads/convolved_ops.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "core/error.h"

namespace specdec {
namespace {

std::string convolution_name(size_t layer, const char* branch) {
  return fmt::format("layers.{}.{}_conv.", layer, branch);
}

/// [n, 2, kernel_size, hidden] of rows [n, hidden].
Tensor kernels_of(const BlockConvolution& convolution, const Tensor& rows) {
  const int64_t taps = convolution.base.size(1);
  const int64_t hidden = convolution.base.size(2);
  const Tensor own = at::linear(rows, convolution.projection).view({rows.size(0), 2, taps, -1});
  return convolution.base + own.repeat_interleave(hidden / own.size(3), 3);
}

/// rows [n, hidden] convolved by side 0 or 1 of their kernels.
Tensor convolved(const Tensor& rows, const Tensor& kernels, int64_t side) {
  const Tensor own = kernels.select(1, side);  // [n, kernel_size, hidden]
  Tensor out = own.select(1, 0) * rows;
  const int64_t count = rows.size(0);
  for (int64_t t = 1; t < std::min(own.size(1), count); ++t) {
    out.slice(0, t).add_(own.select(1, t).slice(0, t) * rows.slice(0, 0, count - t));
  }
  return out;
}

}  // namespace

LayerConvolutions make_convolutions(const BlockHeadConfig& config, const HeadTensors& tensors,
                                    size_t layer) {
  const DFlash2Config& sizes = config.dflash2;
  const auto make = [&](const char* branch) -> BlockConvolution {
    const std::string name = convolution_name(layer, branch);
    return {tensors.small(name + "base_kernel", {2, sizes.kernel_size, config.hidden_size}),
            tensors.small(name + "kernel_projection.weight",
                          {2 * sizes.kernel_size * config.hidden_size / sizes.group_size,
                           config.hidden_size})};
  };
  return {.attention = make("attention"), .mlp = make("mlp")};
}

void write_convolutions(const LayerConvolutions& layer, size_t index, TensorWriter& writer) {
  const auto write = [&](const char* branch, const BlockConvolution& convolution) {
    const std::string name = convolution_name(index, branch);
    writer.add(name + "base_kernel", convolution.base);
    writer.add(name + "kernel_projection.weight", convolution.projection);
  };
  write("attention", layer.attention);
  write("mlp", layer.mlp);
}

ConvolvedOps::ConvolvedOps(std::shared_ptr<Ops> ops, const TransformerWeights& weights,
                           const std::vector<LayerConvolutions>& layers)
    : ForwardingOps(std::move(ops)) {
  SPECDEC_CHECK(layers.size() == weights.layers.size(), "convolutions of {} layers, of {}",
                layers.size(), weights.layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    first_[&layer.qkv] = last_[&layer.output] = &layers[i].attention;
    first_[&layer.gate_up] = last_[&layer.down] = &layers[i].mlp;
  }
}

void ConvolvedOps::linear(const Linear& weight, const Tensor& input, Tensor& out) {
  if (const auto branch = first_.find(&weight); branch != first_.end()) {
    const Tensor rows = input.cpu();
    kernel_ = kernels_of(*branch->second, rows);
    ForwardingOps::linear(weight, convolved(rows, kernel_, 0).to(input.device()), out);
    return;
  }
  ForwardingOps::linear(weight, input, out);
  if (last_.count(&weight) > 0) {
    out.copy_(convolved(out.cpu(), kernel_, 1));
  }
}

}  // namespace specdec
