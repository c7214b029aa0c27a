#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/kernels/forwarding_ops.h"
#include "core/transformer/heads/block_correction.h"
#include "core/transformer/weights.h"

namespace specdec {

/// DFlash2's convolution around one branch of a layer, along the rows of a block: for a row y of
/// the branch's input, kernel = base + projection(y), [2, kernel_size, hidden].
///   input'  [i, c] = sum over t of kernel[i, 0, t, c] input  [i - t, c]
///   output' [i, c] = sum over t of kernel[i, 1, t, c] output [i - t, c]
struct BlockConvolution {
  Tensor base;        ///< [2, kernel_size, hidden]
  Tensor projection;  ///< [2 * kernel_size * hidden / group_size, hidden]
};

/// Convolutions of a layer.
struct LayerConvolutions {
  BlockConvolution attention, mlp;
};

/// Takes the convolutions of a layer from `layers.N.{attention_conv, mlp_conv}`.
LayerConvolutions make_convolutions(const BlockHeadConfig& config, const HeadTensors& tensors,
                                    size_t layer);
void write_convolutions(const LayerConvolutions& layer, size_t index, TensorWriter& writer);

/// A device's ops, whose products convolve the input of a branch's first matrix and the output of
/// its last one. Convolutions are computed on the host. Borrows the weights.
class ConvolvedOps final : public ForwardingOps {
 public:
  ConvolvedOps(std::shared_ptr<Ops> ops, const TransformerWeights& weights,
               const std::vector<LayerConvolutions>& layers);

  void linear(const Linear& weight, const Tensor& input, Tensor& out) override;
  bool has_library() const override { return false; }  // whose products it does not convolve

 private:
  std::unordered_map<const Linear*, const BlockConvolution*> first_;  // matrices of branches
  std::unordered_map<const Linear*, const BlockConvolution*> last_;
  Tensor kernel_;  // of the branch that is evaluated, [n, 2, kernel_size, hidden]
};

}  // namespace specdec
