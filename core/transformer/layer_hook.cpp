#include "core/transformer/layer_hook.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace specdec {

void LayerPass::set_residual(const Tensor& value) {
  SPECDEC_CHECK(value.defined() && value.sizes() == call_.residual.sizes(),
                "a hook of layer {} sets a residual stream of another shape than [{}, {}]",
                call_.layer, call_.residual.size(0), call_.residual.size(1));
  call_.residual.copy_(value);
}

void LayerPass::evaluate() {
  SPECDEC_CHECK(!evaluated_, "a hook evaluates layer {} twice", call_.layer);
  evaluated_ = true;
  if (others_.empty()) {
    call_.evaluate();
    return;
  }
  LayerPass inner(call_, others_.subspan(1));
  others_.front()->run(inner);
}

void run_hooks(const LayerHooks& hooks, const LayerCall& call) {
  LayerPass pass(call, std::span(hooks).subspan(1));
  hooks.front()->run(pass);
}

std::string hooks_fingerprint(const LayerHooks& hooks) {
  std::string text;
  for (const auto& hook : hooks) {
    if (const std::string own = hook->fingerprint(); !own.empty()) {
      text += ";hook " + std::to_string(own.size()) + ":" + own;
    }
  }
  return text;
}

}  // namespace specdec
