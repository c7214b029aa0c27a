#include "core/transformer/heads/module_chains.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/transformer/layer_runner.h"

namespace specdec {

ModuleChains::ModuleChains(std::vector<FeatureModel*> modules, int64_t graphs)
    : modules_(std::move(modules)), ops_(modules_.front()->ops()), graphs_(ops_, graphs) {
  SPECDEC_CHECK(modules_.size() > 1 && std::all_of(modules_.begin(), modules_.end(),
                                                   [&](const FeatureModel* module) {
                                                     return &module->ops() == &ops_;
                                                   }),
                "chains of {} modules, which share their ops", modules_.size());
}

int64_t ModuleChains::steps_of(size_t module, int64_t count) const {
  const auto place = static_cast<int64_t>(module);
  return module + 1 == modules_.size() ? count - 1 : std::min(place, count - 1);
}

bool ModuleChains::can_draw(int64_t count) const {
  return modules_.front()->draws_chains() && graphs_.enabled() &&
         std::all_of(modules_.begin(), modules_.end(), [count](const FeatureModel* module) {
           return module->can_step(std::max<int64_t>(count - 1, 1));
         });
}

std::optional<DrawnChain> ModuleChains::draw(const ChainRequest& chain, const Tensor& logits,
                                             std::span<const Tensor> features) {
  SPECDEC_CHECK(can_draw(chain.count) && features.size() == modules_.size(),
                "a chain of {} tokens by {} modules with {} features", chain.count, modules_.size(),
                features.size());
  const auto drawing = ops_.sampler()->begin_chain(chain, modules_.front()->vocab_size());
  GraphKey key = drawing->key();
  if (!begin_steps(chain.count, key)) {
    return std::nullopt;
  }
  for (size_t module = 0; module < modules_.size(); ++module) {
    if (roots_.size() == module) {
      roots_.push_back(at::empty_like(features[module]));
    }
    ops_.copy(plain_input(features[module], roots_[module]), roots_[module]);
  }
  const Tensor first = drawing->draw(0, logits);
  if (chain.count > 1) {
    graphs_.run(key, [&] { draw_behind(first, chain.count, *drawing); });
  }
  return drawing->read();
}

bool ModuleChains::begin_steps(int64_t count, GraphKey& key) {
  std::vector<FeatureModel*> begun;
  begun.reserve(modules_.size());
  const auto undo = [&begun] {
    for (FeatureModel* module : begun) {
      module->undo_forward();
    }
  };
  try {
    for (size_t module = 0; module < modules_.size(); ++module) {
      const int64_t steps = steps_of(module, count);
      if (steps == 0) {
        continue;
      }
      if (!modules_[module]->begin_steps(steps, key)) {
        undo();
        return false;
      }
      begun.push_back(modules_[module]);
    }
  } catch (...) {
    undo();
    throw;
  }
  return true;
}

void ModuleChains::draw_behind(const Tensor& first, int64_t count, ChainDrawing& drawing) {
  Tensor token = first;
  std::vector<Tensor> features = roots_;
  const size_t last = modules_.size() - 1;
  for (int64_t index = 1; index < count; ++index) {
    const size_t scores = std::min(static_cast<size_t>(index), last);
    for (size_t module = last; module >= scores; --module) {  // each reads what the others replace
      const size_t source = static_cast<size_t>(index) > module ? module : module - 1;
      features[module] = modules_[module]->run_step(index - 1, token, features[source]);
    }
    token = drawing.draw(index, modules_[scores]->step_logits());
  }
}

}  // namespace specdec
