#include "core/transformer/heads/drafting_functions.h"

#include <algorithm>
#include <span>
#include <utility>

namespace specdec {
namespace {

/// Keys that the sliding layers see beyond their window; the one that transformers gives is always
/// there.
int64_t older_keys(const AssistantHead& head, int64_t sliding_keys) {
  int64_t older = 0;
  for (const LayerPlan& layer : head.weights.plan) {
    older = std::max(older, layer.window > 0 ? sliding_keys - layer.window - 1 : 0);
  }
  return older;
}

}  // namespace

MtpModules make_mtp_modules(const std::shared_ptr<const MtpHead>& head, int64_t count,
                            const std::shared_ptr<const TransformerWeights>& target,
                            const KvStoreFactory& store, const TransformerOptions& options) {
  TransformerOptions shared = options;
  shared.ops = ops_of(options, *target);
  MtpModules modules;
  std::vector<FeatureModel*> drawing;
  for (int64_t module = 0; module < count; ++module) {
    auto model = make_mtp_model(head, static_cast<size_t>(module), target, store, shared);
    drawing.push_back(model.get());
    modules.models.push_back(std::move(model));
  }
  if (count > 1) {
    modules.drafts = std::make_shared<ModuleDrafts>(std::move(drawing), options.graphs);
  }
  return modules;
}

ModuleDrawing drawing_of(const std::shared_ptr<ModuleDrafts>& drafts) {
  if (drafts == nullptr) {
    return {};
  }
  return {.can_draw_chain = [drafts](int64_t fed,
                                     int64_t count) { return drafts->can_draw_chain(fed, count); },
          .can_draw_tree = [drafts](int64_t fed,
                                    int64_t count) { return drafts->can_draw_tree(fed, count); },
          .draw_chain = [drafts](const ChainRequest& chain,
                                 const FedModules& fed) { return drafts->draw_chain(chain, fed); },
          .draw_tree = [drafts](const TreeRequest& tree,
                                const FedModules& fed) { return drafts->draw_tree(tree, fed); }};
}

MedusaHeads drafting_heads(const std::shared_ptr<MedusaModel>& model) {
  MedusaHeads heads{.count = model->count(),
                    .hidden_size = model->target().config.hidden_size,
                    .vocab_size = model->target().config.vocab_size,
                    .logits = [model](const Tensor& hidden,
                                      int64_t index) { return model->logits(hidden, index); },
                    .vocabulary = model->vocabulary()};
  if (model->samples()) {
    heads.device_logits = [model](const Tensor& hidden, int64_t index) {
      return model->device_logits(hidden, index);
    };
    heads.draw_chain = [model](const ChainRequest& chain, const Tensor& hidden) {
      return model->draw_chain(chain, hidden);
    };
    heads.draw_tree = [model](const TreeRequest& tree, const Tensor& hidden) {
      return model->draw_tree(tree, hidden);
    };
  }
  return heads;
}

AssistantSteps drafting_steps(const std::shared_ptr<AssistantModel>& model) {
  const AssistantHead& head = model->head();
  AssistantSteps steps{
      .hidden_size = head.target_hidden,
      .vocab_size = head.weights.config.vocab_size,
      .older_keys = older_keys(head, model->options().sliding_keys),
      .step = [model](const Tensor& embeddings, const Tensor& hidden,
                      const Internals& target) -> AssistantSteps::Step {
        AssistantModel::Step step = model->step(embeddings, hidden, target, 0);
        return {.logits = step.logits, .hidden = step.hidden, .read_backs = step.read_backs};
      }};
  if (const auto sampler = model->sampler()) {
    steps.device_step = [model, sampler](const Tensor& embeddings, const Tensor& hidden,
                                         const Internals& target) -> AssistantSteps::Step {
      AssistantModel::Step step = model->device_step(embeddings, hidden, target, 0);
      return {.logits = step.logits, .hidden = step.hidden, .sampler = sampler};
    };
  }
  if (model->draws_drafts()) {
    steps.draw_chain = [model](const ChainRequest& chain, Token token, const Tensor& hidden,
                               const Internals& target) {
      return model->draw_chain(chain, token, hidden, target, 0);
    };
    steps.draw_tree = [model](const TreeRequest& tree, Token token, const Tensor& hidden,
                              const Internals& target) {
      return model->draw_tree(tree, token, hidden, target, 0);
    };
  }
  return steps;
}

}  // namespace specdec
