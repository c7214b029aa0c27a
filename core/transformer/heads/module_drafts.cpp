#include "core/transformer/heads/module_drafts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/result_memory.h"
#include "core/transformer/layer_runner.h"

namespace specdec {

ModuleDrafts::ModuleDrafts(std::vector<FeatureModel*> modules, int64_t graphs)
    : modules_(std::move(modules)),
      ops_(modules_.front()->ops()),
      graphs_(ops_, graphs),
      memories_(modules_.front()->shared_ops()) {
  SPECDEC_CHECK(modules_.size() > 1 && std::all_of(modules_.begin(), modules_.end(),
                                                   [&](const FeatureModel* module) {
                                                     return &module->ops() == &ops_;
                                                   }),
                "drafts of {} modules, which share their ops", modules_.size());
}

int64_t ModuleDrafts::fed_steps(size_t module, int64_t steps) const {
  return module + 1 == modules_.size() ? steps : std::min(static_cast<int64_t>(module), steps);
}

bool ModuleDrafts::can_draw_chain(int64_t fed, int64_t count) const {
  return modules_.front()->draws_drafts() && graphs_.enabled() &&
         std::all_of(modules_.begin(), modules_.end(),
                     [&](const FeatureModel* module) { return module->can_step(fed + count - 1); });
}

bool ModuleDrafts::can_draw_tree(int64_t fed, int64_t count) const {
  return count < ResultMemory::kMostRows && can_draw_chain(fed, count);
}

void ModuleDrafts::check_fed(const FedModules& fed, int64_t count, bool can_draw) const {
  const size_t before = modules_.size() - 1;
  SPECDEC_CHECK(can_draw,
                "{} tokens behind {} by {} modules: ask can_draw_chain() or can_draw_tree() first",
                count, fed.tokens.size(), modules_.size());
  SPECDEC_CHECK(
      !fed.tokens.empty() && fed.newest.size() == modules_.size() && fed.features.dim() == 2 &&
          fed.features.size(0) == std::ssize(fed.tokens) &&
          std::all_of(fed.newest.begin(), fed.newest.begin() + static_cast<std::ptrdiff_t>(before),
                      [](const Tensor& feature) { return feature.defined(); }),
      "a draft by {} modules behind {} tokens: each has a feature of the target, and each module "
      "but the last one feature before them",
      modules_.size(), fed.tokens.size());
}

std::optional<DrawnChain> ModuleDrafts::draw_chain(const ChainRequest& chain,
                                                   const FedModules& fed) {
  check_fed(fed, chain.count, can_draw_chain(std::ssize(fed.tokens), chain.count));
  const auto drawing = ops_.sampler()->begin_chain(chain, modules_.front()->vocab_size());
  return run(steps_of(*drawing, chain.count), fed) ? finish([&] { return drawing->read(); }, fed)
                                                   : std::nullopt;
}

std::optional<DrawnTree> ModuleDrafts::draw_tree(const TreeRequest& tree, const FedModules& fed) {
  const auto tokens = std::ssize(tree.parents) - 1;
  check_fed(fed, tokens, can_draw_tree(std::ssize(fed.tokens), tokens));
  const auto drawing = ops_.sampler()->begin_tree(tree, modules_.front()->vocab_size());
  const DraftSteps steps = steps_of(*drawing, tree.parents);
  return run(steps, fed) ? finish([&] { return drawing->read(std::ssize(steps.sizes) + 1); }, fed)
                         : std::nullopt;
}

bool ModuleDrafts::run(const DraftSteps& steps, const FedModules& fed) {
  GraphKey key = steps.key;
  if (key.empty() || !begin_steps(steps, fed.tokens, key)) {
    return false;
  }
  if (!graphs_.knows(key)) {
    undo_steps(modules_.size());
    return false;
  }
  try {
    place(fed);
    graphs_.run(key, [&] { draw(steps); });
  } catch (...) {
    undo_steps(modules_.size());
    throw;
  }
  return true;
}

bool ModuleDrafts::begin_steps(const DraftSteps& steps, TokenSpan fed, GraphKey& key) {
  size_t module = 0;
  try {
    for (; module < modules_.size(); ++module) {
      const int64_t count = fed_steps(module, std::ssize(steps.sizes));
      if (!modules_[module]->begin_steps(fed, steps, count, key)) {
        undo_steps(module);
        return false;
      }
    }
  } catch (...) {
    undo_steps(module);
    throw;
  }
  return true;
}

void ModuleDrafts::undo_steps(size_t modules) {
  for (size_t module = 0; module < modules; ++module) {
    modules_[module]->undo_forward();
  }
}

std::vector<Tensor> ModuleDrafts::single_features(const Tensor& like) const {
  std::vector<Tensor> features;
  for (size_t module = 0; module + 1 < modules_.size(); ++module) {
    features.push_back(at::empty(like.sizes(), placed_.options()));
  }
  return features;
}

void ModuleDrafts::place(const FedModules& fed) {
  const Tensor features = modules_.front()->prepared(fed.features);
  memory_ = &memories_.of(features.size(0));
  placed_ = memory_->gathered().result(features.size(0), features.size(1), features.options());
  ops_.copy(features, placed_);
  if (newest_.empty()) {
    newest_ = single_features(fed.newest.front());
    earlier_ = single_features(fed.newest.front());
  }
  for (size_t module = 0; module < newest_.size(); ++module) {
    if (fed.newest[module].const_data_ptr() != newest_[module].const_data_ptr()) {
      ops_.copy(plain_input(fed.newest[module], newest_[module]), newest_[module]);
    }
  }
}

void ModuleDrafts::undo_draft() {
  for (size_t module = 0; module < newest_.size(); ++module) {
    ops_.copy(earlier_[module], newest_[module]);
  }
  undo_steps(modules_.size());
}

template <class Read>
std::invoke_result_t<Read> ModuleDrafts::finish(const Read& read, const FedModules& fed) {
  std::invoke_result_t<Read> drawn;
  try {
    drawn = read();
  } catch (...) {
    undo_draft();
    throw;
  }
  if (!drawn) {
    undo_draft();
    return drawn;
  }
  std::copy(newest_.begin(), newest_.end(), fed.newest.begin());
  fed.newest.back() = Tensor();
  return drawn;
}

std::vector<Tensor> ModuleDrafts::feed() {
  const int64_t count = placed_.size(0);
  Ops& shifted = memory_->entering();
  std::vector<Tensor> features = {modules_.front()->run_fed(placed_, /*own=*/false)};
  for (size_t module = 1; module < modules_.size(); ++module) {
    const Tensor before = shifted.result(count, features.back().size(1), placed_.options());
    Tensor first = before.narrow(0, 0, 1);
    ops_.copy(newest_[module - 1], first);
    if (count > 1) {
      Tensor others = before.narrow(0, 1, count - 1);
      ops_.copy(features.back().narrow(0, 0, count - 1), others);
    }
    if (module + 1 == modules_.size()) {
      modules_[module]->keep_fed(before, /*own=*/true);
    } else {
      features.push_back(modules_[module]->run_fed(before, /*own=*/true));
    }
  }
  return features;
}

void ModuleDrafts::draw(const DraftSteps& steps) {
  const int64_t count = placed_.size(0);
  const size_t last = modules_.size() - 1;
  std::vector<Tensor> features = feed();
  for (Tensor& feature : features) {
    feature = feature.narrow(0, count - 1, 1);
  }
  const std::vector<Tensor> roots = features;
  features.resize(modules_.size());  // the last module's own are those of drafted tokens alone
  Tensor tokens = steps.draw(0, modules_.front()->fed_logits());
  for (int64_t step = 1; step <= std::ssize(steps.sizes); ++step) {
    const Tensor parents = steps.parents_in_step(step);
    const size_t scores = std::min(static_cast<size_t>(step), last);
    for (size_t module = last; module >= scores; --module) {  // each reads what the others replace
      const size_t source = static_cast<size_t>(step) > module ? module : module - 1;
      features[module] = modules_[module]->run_step(
          count + steps.first_of(step) - 1,
          {.tokens = tokens, .features = features[source], .parents = parents});
    }
    tokens = steps.draw(step, modules_[scores]->step_logits());
  }
  for (size_t module = 0; module < last; ++module) {  // last, so what fails before changes nothing
    ops_.copy(newest_[module], earlier_[module]);
    ops_.copy(roots[module], newest_[module]);
  }
}

}  // namespace specdec
