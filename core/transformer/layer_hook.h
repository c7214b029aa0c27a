#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/forward.h"

namespace specdec {

class LayerPass;

/// A stage of one's own around the layers of a forward: before one, after it, or in its place (see
/// TransformerOptions::hooks). It sees every forward of its model, a prompt's pieces, single tokens
/// and draft trees, and the layers that such a forward evaluates, in order. What it throws ends the
/// forward, as if that had not been. Called by the model's thread.
class LayerHook {
 public:
  virtual ~LayerHook() = default;
  LayerHook() = default;
  LayerHook(const LayerHook&) = delete;
  LayerHook& operator=(const LayerHook&) = delete;

  /// Names what the hook does to the stream, settings included: a part of the model's kv_key, so
  /// that snapshots and prefixes of models that compute other numbers are not mixed. "" = it
  /// changes nothing. A hook changes it never, or only while the model holds no tokens.
  virtual std::string fingerprint() const = 0;
  /// Calls pass.evaluate() to run the layer; what stands before and after that call is the stage. A
  /// hook that does not call it replaces the layer, which then sees each node alone, and has to do
  /// so in every forward: later tokens would read keys that nobody wrote.
  virtual void run(LayerPass& pass) = 0;
};

/// Hooks of a model, the first one outermost.
using LayerHooks = std::vector<std::shared_ptr<LayerHook>>;

/// A layer of a forward. Borrows.
struct LayerCall {
  int64_t layer = 0;
  const TokenBatch& batch;                ///< of the forward
  Tensor positions;                       ///< [n] int32, on the model's device
  Tensor& residual;                       ///< [n, hidden]
  const std::function<void()>& evaluate;  ///< the layer itself
};

/// A layer of a forward, as a hook sees it. Valid during the hook's call.
class LayerPass {
 public:
  LayerPass(const LayerCall& call, std::span<const std::shared_ptr<LayerHook>> others)
      : call_(call), others_(others) {}

  int64_t layer() const { return call_.layer; }
  /// Tokens or embeddings of the n new nodes, their rows, and their parents in a tree.
  const TokenBatch& batch() const { return call_.batch; }
  /// Positions of the nodes in their rows, [n] int32, on the model's device.
  const Tensor& positions() const { return call_.positions; }
  /// Residual stream [n, hidden]: the layer's input before evaluate(), and its output afterwards;
  /// of Gemma 3n the active stream. The memory is used again: what is kept has to be cloned.
  const Tensor& residual() const { return call_.residual; }
  /// Sets the stream to a tensor of the same shape, of any type and device. Throws InternalError
  /// for another shape.
  void set_residual(const Tensor& value);
  /// Runs the layer, within the hooks after this one. Throws InternalError when called twice.
  void evaluate();

 private:
  const LayerCall& call_;
  std::span<const std::shared_ptr<LayerHook>> others_;
  bool evaluated_ = false;
};

/// Runs a layer within hooks, of which there is at least one.
void run_hooks(const LayerHooks& hooks, const LayerCall& call);
/// Names what hooks change, for kv_key; "" where they change nothing.
std::string hooks_fingerprint(const LayerHooks& hooks);

}  // namespace specdec
