#include "core/transformer/adapters/module_updates.h"

#include <ATen/ATen.h>

#include "core/transformer/adapters/lora_modules.h"

namespace specdec {

void ModuleUpdate::add(const Tensor& a, const Tensor& b) {
  pairs_.emplace_back(a.to(at::kDouble), b.to(at::kDouble));
}

Tensor ModuleUpdate::rows(int64_t first, int64_t count) const {
  Tensor sum;
  for (const auto& [a, b] : pairs_) {
    const Tensor product = at::matmul(b.narrow(0, first, count), a);
    sum = sum.defined() ? sum + product : product;
  }
  return sum;
}

std::map<std::string, ModuleUpdate> module_updates(const AdapterStack& stack) {
  std::map<std::string, ModuleUpdate> updates;
  for (const LoraModule& module : lora_modules(stack.base())) {
    for (const auto& [adapter, scale] : stack.adapters()) {
      for (const LoraPair& pair : adapter->pairs) {
        if (pair.matrix == module.matrix && pair.first == module.first) {
          updates[module.name].add(pair.a, pair.b.to(at::kDouble) * scale);
        }
      }
    }
  }
  return updates;
}

}  // namespace specdec
