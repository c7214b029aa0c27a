#include "core/transformer/heads/module_drafts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/result_memory.h"
#include "core/transformer/layer_runner.h"

namespace specdec {

ModuleDrafts::ModuleDrafts(std::vector<FeatureModel*> modules, int64_t graphs)
    : modules_(std::move(modules)), ops_(modules_.front()->ops()), graphs_(ops_, graphs) {
  SPECDEC_CHECK(modules_.size() > 1 && std::all_of(modules_.begin(), modules_.end(),
                                                   [&](const FeatureModel* module) {
                                                     return &module->ops() == &ops_;
                                                   }),
                "drafts of {} modules, which share their ops", modules_.size());
}

int64_t ModuleDrafts::fed_steps(size_t module, int64_t steps) const {
  return module + 1 == modules_.size() ? steps : std::min(static_cast<int64_t>(module), steps);
}

bool ModuleDrafts::can_draw(int64_t count) const {
  return modules_.front()->draws_drafts() && graphs_.enabled() &&
         std::all_of(modules_.begin(), modules_.end(), [count](const FeatureModel* module) {
           return module->can_step(std::max<int64_t>(count - 1, 1));
         });
}

std::optional<DrawnChain> ModuleDrafts::draw_chain(const ChainRequest& chain,
                                                   const ModuleRoot& root) {
  SPECDEC_CHECK(can_draw(chain.count), "a chain of {} tokens by {} modules: ask can_draw() first",
                chain.count, modules_.size());
  const auto drawing = ops_.sampler()->begin_chain(chain, modules_.front()->vocab_size());
  return run(steps_of(*drawing, chain.count), root) ? drawing->read() : std::nullopt;
}

std::optional<DrawnTree> ModuleDrafts::draw_tree(const TreeRequest& tree, const ModuleRoot& root) {
  const auto tokens = std::ssize(tree.parents) - 1;
  SPECDEC_CHECK(can_draw(tokens), "a tree of {} tokens by {} modules: ask can_draw() first", tokens,
                modules_.size());
  if (tokens >= ResultMemory::kMostRows) {
    return std::nullopt;
  }
  const auto drawing = ops_.sampler()->begin_tree(tree, modules_.front()->vocab_size());
  const DraftSteps steps = steps_of(*drawing, tree.parents);
  return run(steps, root) ? drawing->read(std::ssize(steps.sizes) + 1) : std::nullopt;
}

bool ModuleDrafts::run(const DraftSteps& steps, const ModuleRoot& root) {
  SPECDEC_CHECK(root.features.size() == modules_.size(), "a draft by {} modules with {} features",
                modules_.size(), root.features.size());
  GraphKey key = steps.key;
  if (key.empty() || !begin_steps(steps, key)) {
    return false;
  }
  if (!steps.sizes.empty() && !graphs_.knows(key)) {
    undo_steps(steps, modules_.size());
    return false;
  }
  try {
    copy_roots(root);
    const Tensor first = steps.draw(0, root.logits);
    if (!steps.sizes.empty()) {
      graphs_.run(key, [&] { draw_behind(first, steps); });
    }
  } catch (...) {
    undo_steps(steps, modules_.size());
    throw;
  }
  return true;
}

void ModuleDrafts::copy_roots(const ModuleRoot& root) {
  for (size_t module = 0; module < modules_.size(); ++module) {
    if (roots_.size() == module) {
      roots_.push_back(at::empty_like(root.features[module]));
    }
    ops_.copy(plain_input(root.features[module], roots_[module]), roots_[module]);
  }
}

void ModuleDrafts::undo_steps(const DraftSteps& steps, size_t modules) {
  for (size_t module = 0; module < modules; ++module) {
    if (fed_steps(module, std::ssize(steps.sizes)) > 0) {
      modules_[module]->undo_forward();
    }
  }
}

bool ModuleDrafts::begin_steps(const DraftSteps& steps, GraphKey& key) {
  size_t module = 0;
  try {
    for (; module < modules_.size(); ++module) {
      const int64_t count = fed_steps(module, std::ssize(steps.sizes));
      if (count > 0 && !modules_[module]->begin_steps(steps, count, key)) {
        undo_steps(steps, module);
        return false;
      }
    }
  } catch (...) {
    undo_steps(steps, module);
    throw;
  }
  return true;
}

void ModuleDrafts::draw_behind(const Tensor& first, const DraftSteps& steps) {
  Tensor tokens = first;
  std::vector<Tensor> features = roots_;
  const size_t last = modules_.size() - 1;
  for (int64_t step = 1; step <= std::ssize(steps.sizes); ++step) {
    const Tensor parents = steps.parents_in_step(step);
    const size_t scores = std::min(static_cast<size_t>(step), last);
    for (size_t module = last; module >= scores; --module) {  // each reads what the others replace
      const size_t source = static_cast<size_t>(step) > module ? module : module - 1;
      features[module] = modules_[module]->run_step(
          steps.first_of(step) - 1,
          {.tokens = tokens, .features = features[source], .parents = parents});
    }
    tokens = steps.draw(step, modules_[scores]->step_logits());
  }
}

}  // namespace specdec
