#include "core/embeddings/dense_layers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/transformer/tensor_source.h"

namespace specdec {
namespace {

Tensor activated(const Tensor& values, DenseActivation activation) {
  switch (activation) {
    case DenseActivation::kTanh:
      return at::tanh(values);
    case DenseActivation::kRelu:
      return at::relu(values);
    case DenseActivation::kGelu:
      return at::gelu(values);
    case DenseActivation::kSigmoid:
      return at::sigmoid(values);
    case DenseActivation::kIdentity:
      break;
  }
  return values;
}

}  // namespace

DenseLayers::DenseLayers(const std::vector<DenseModule>& modules, int64_t width,
                         at::ScalarType dtype)
    : out_(width) {
  for (const DenseModule& module : modules) {
    if (module.in != out_) {
      throw WeightsError(
          fmt::format("{}/config.json: 'in_features' is {}, but what is before it gives {} numbers",
                      module.folder.string(), module.in, out_));
    }
    TensorSource source(CheckpointTensors(module.folder), placement_on(at::kCPU));
    Layer layer{.weight = source.load("linear.weight", {module.out, module.in}, dtype),
                .bias = module.bias ? source.load("linear.bias", {module.out}, dtype) : Tensor(),
                .activation = module.activation};
    source.check_all_taken("linear.");
    layers_.push_back(std::move(layer));
    out_ = module.out;
  }
}

Tensor DenseLayers::apply(const Tensor& input) const {
  Tensor values = input;
  for (const Layer& layer : layers_) {
    values = activated(at::linear(values, layer.weight, layer.bias), layer.activation);
  }
  return values;
}

}  // namespace specdec
