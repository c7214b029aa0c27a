#include "decoders/drafters/feature_drafter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/stopwatch.h"
#include "decoders/drafters/hidden_states.h"

namespace specdec {
namespace {

/// Committed tokens that a drawn draft feeds together; those before are read first.
constexpr int64_t kMostFeatures = 32;

}  // namespace

FeatureDrafter::FeatureDrafter(std::vector<std::unique_ptr<LanguageModel>> modules,
                               FeatureDrafterOptions options)
    : DistributionDrafter(options.sample),
      modules_(std::move(modules)),
      options_(std::move(options)),
      target_features_(options_.capture_layers) {
  SPECDEC_CHECK(!modules_.empty(), "a head without modules");
}

Needs FeatureDrafter::needs() const {
  return {.capture_layers = options_.capture_layers, .internals = true, .on_device = true};
}

void FeatureDrafter::check(const LanguageModel& target) const {
  const Internals& internals =
      check_hidden_states(target, options_.hidden_size, modules_.front()->vocab_size());
  for (const int64_t layer : options_.capture_layers) {
    if (layer < 0 || layer >= internals.num_layers()) {
      throw ConfigError(fmt::format(
          "the head is fed the residual stream after layer {}, and the target has layers 0 to {}. "
          "Use a head that was trained for this target",
          layer, internals.num_layers() - 1));
    }
  }
}

void FeatureDrafter::reset() {
  for (const auto& module : modules_) {
    module->truncate(0);
  }
  target_features_.reset();
  newest_.assign(modules_.size(), Tensor());
  root_ = {};
}

ForwardResult FeatureDrafter::feed(size_t module, TokenSpan tokens, const Tensor& features,
                                   Logits scored, LogitsUse use) {
  const bool reads_prompt = modules_[module]->length() == 0;
  const ScopedSeconds timer(reads_prompt ? prompt_seconds_ : nullptr);
  // The next module reads those of all tokens; a prompt's would take much memory of a device.
  const Hidden hidden = modules_.size() > 1 ? Hidden::kAll : Hidden::kScored;
  return counted(modules_[module]->extend(tokens,
                                          {.logits = scored,
                                           .logits_use = use,
                                           .hidden = hidden,
                                           .keep_hidden = true,
                                           .draft_columns = true},
                                          {.features = features, .own_features = module > 0}));
}

void FeatureDrafter::forget_pending() {
  for (const auto& module : modules_) {
    if (module->pending() > 0) {
      module->truncate(module->length());
    }
  }
}

void FeatureDrafter::catch_up(LogitsUse use) {
  forget_pending();
  Tensor features = target_features_.take();
  if (!features.defined()) {
    return;
  }
  feed_all(committed_.last(static_cast<size_t>(features.size(0))), features, Logits::kLast, use);
}

void FeatureDrafter::feed_all(TokenSpan tokens, Tensor features, Logits scored, LogitsUse use) {
  for (size_t module = 0; module < modules_.size() && !tokens.empty(); ++module) {
    const ForwardResult result =
        feed(module, tokens, features, module == 0 ? scored : Logits::kNone, use);
    if (module == 0) {
      root_ = {.logits = result.logits, .sampler = result.sampler};
    }
    const Tensor& out = result.final_hidden;
    if (!out.defined()) {
      return;  // of one module whose logits nobody reads
    }
    const Tensor before = std::exchange(newest_[module], out.narrow(0, out.size(0) - 1, 1));
    features = out.narrow(0, 0, out.size(0) - 1);
    if (before.defined()) {
      features = at::cat({before, features});
    } else {
      tokens = tokens.subspan(1);  // nothing comes before the sequence's first feature
    }
  }
}

size_t FeatureDrafter::draft_module(int64_t depth) const {
  return std::min(static_cast<size_t>(depth), modules_.size() - 1);
}

Tensor FeatureDrafter::feature_before(size_t module, const Draft& partial, int64_t node) const {
  const auto depth = static_cast<size_t>(nodes_[static_cast<size_t>(node)].depth);
  const auto parent = static_cast<size_t>(partial.parents[static_cast<size_t>(node)]);
  const size_t source = depth > module ? module : module - 1;  // its own, or the one before
  return nodes_[parent].features[source];
}

std::shared_ptr<DeviceSampler> FeatureDrafter::evaluate(size_t module, const Frontier& frontier,
                                                        std::vector<Tensor>& logits) {
  const auto& [partial, nodes, on_device, use] = frontier;
  std::vector<size_t> seen;  // places in `nodes`
  std::vector<Token> tokens;
  std::vector<Tensor> features;
  TokenBatch batch;
  bool says_distribution = false;
  LanguageModel& model = *modules_[module];
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto index = static_cast<size_t>(nodes[i]);
    const size_t distribution = draft_module(nodes_[index].depth);
    const Tensor before =
        distribution <= module ? feature_before(module, partial, nodes[i]) : Tensor();
    if (!before.defined()) {
      continue;
    }
    nodes_[index].pending[module] = model.pending() + static_cast<int64_t>(seen.size());
    batch.parents.push_back(nodes_[static_cast<size_t>(partial.parents[index])].pending[module]);
    seen.push_back(i);
    tokens.push_back(partial.tokens[index]);
    features.push_back(before);
    says_distribution = says_distribution || distribution == module;
  }
  if (seen.empty()) {
    return nullptr;
  }
  SPECDEC_CHECK(!on_device.defined() || seen.size() == nodes.size(),
                "a module sees {} of {} nodes whose tokens lie on a device", seen.size(),
                nodes.size());
  batch.tokens = on_device.defined() ? on_device : token_tensor(tokens);
  batch.inputs = {.features = features.size() == 1 ? features.front() : at::cat(features),
                  .own_features = true};
  const ForwardResult result =
      counted(model.forward(batch, {.logits = says_distribution ? Logits::kAll : Logits::kNone,
                                    .logits_use = use,
                                    .hidden = Hidden::kAll,
                                    .keep_hidden = true,
                                    .draft_columns = true}));
  const bool says_all =
      seen.size() == nodes.size() && std::all_of(nodes.begin(), nodes.end(), [&](int64_t node) {
        return draft_module(nodes_[static_cast<size_t>(node)].depth) == module;
      });
  if (says_all) {
    logits = {result.logits};
  }
  for (size_t row = 0; row < seen.size(); ++row) {
    Node& node = nodes_[static_cast<size_t>(nodes[seen[row]])];
    node.features[module] = result.final_hidden.narrow(0, static_cast<int64_t>(row), 1);
    if (!says_all && draft_module(node.depth) == module) {
      logits[seen[row]] = result.logits.narrow(0, static_cast<int64_t>(row), 1);
    }
  }
  return result.sampler;
}

ForwardResult FeatureDrafter::evaluate(const Frontier& frontier) {
  const auto& [partial, nodes, tokens, use] = frontier;
  const Node unseen{.depth = 0,
                    .features = std::vector<Tensor>(modules_.size()),
                    .pending = std::vector<int64_t>(modules_.size(), -1)};
  nodes_.resize(partial.tokens.size(), unseen);
  if (nodes.size() == 1 && nodes.front() == 0) {
    catch_up(use);
    SPECDEC_CHECK(root_.logits.defined(), "a head drafts again behind the same text");
    nodes_.front().features = newest_;
    return root_;
  }
  for (const int64_t node : nodes) {
    const auto index = static_cast<size_t>(node);
    nodes_[index].depth = nodes_[static_cast<size_t>(partial.parents[index])].depth + 1;
  }
  std::vector<Tensor> logits(nodes.size());
  ForwardResult found;
  for (size_t module = 0; module < modules_.size(); ++module) {
    if (auto sampler = evaluate(module, frontier, logits)) {
      found.sampler = std::move(sampler);
    }
  }
  found.logits = logits.size() == 1 ? logits.front() : at::cat(logits);
  return found;
}

Tensor FeatureDrafter::expand(const Draft& partial, std::span<const int64_t> frontier) {
  return evaluate({.partial = partial, .nodes = frontier, .tokens = {}}).logits;
}

bool FeatureDrafter::expands_on_device() {
  return modules_.front()->draws_drafts() && target_features_.untaken().defined();
}

ForwardResult FeatureDrafter::expand_on_device(const Draft& partial,
                                               std::span<const int64_t> frontier,
                                               const Tensor& tokens) {
  return evaluate(
      {.partial = partial, .nodes = frontier, .tokens = tokens, .use = LogitsUse::kSampler});
}

std::optional<int64_t> FeatureDrafter::fed_before(int64_t size, int64_t count,
                                                  const ModuleDrawing::CanDraw& can_draw) const {
  const bool is_prompt = modules_.front()->length() == 0 || size > kMostFeatures;
  if (modules_.size() == 1) {
    return is_prompt ? size - 1 : 0;
  }
  if (target_features_.known() < std::ssize(modules_) || !can_draw || !can_draw(1, count)) {
    return std::nullopt;
  }
  const bool is_first = !newest_[modules_.size() - 2].defined();  // some have kept nothing
  return is_prompt || is_first || !can_draw(size, count) ? size - 1 : 0;
}

template <class Draw>
auto FeatureDrafter::draw_behind(int64_t count, const ModuleDrawing::CanDraw& can_draw,
                                 const Draw& draw) {
  const Tensor features = target_features_.untaken();
  const int64_t size = features.defined() ? features.size(0) : 0;
  const TokenSpan tokens = committed_.last(static_cast<size_t>(size));
  const std::optional<int64_t> before = size > 0 ? fed_before(size, count, can_draw) : std::nullopt;
  if (!before) {
    return decltype(draw(tokens, features)){};
  }
  forget_pending();
  if (*before > 0) {
    feed_all(tokens.first(static_cast<size_t>(*before)), features.narrow(0, 0, *before),
             Logits::kNone);
    target_features_.drop(*before);
  }
  auto drawn = draw(tokens.subspan(static_cast<size_t>(*before)),
                    features.narrow(0, *before, size - *before));
  if (drawn) {
    for (const auto& module : modules_) {
      module->commit(chain_path(size - *before));
    }
    target_features_.drop(size - *before);
    root_ = {};
    newest_.back() = Tensor();
  }
  return drawn;
}

std::optional<DrawnChain> FeatureDrafter::draw_chain(const ChainRequest& chain) {
  const ModuleDrawing& modules = options_.modules;
  return draw_behind(
      chain.count, modules.can_draw_chain, [&](TokenSpan fed, const Tensor& features) {
        return modules_.size() > 1
                   ? modules.draw_chain(chain, {fed, features, newest_})
                   : modules_.front()->draw_chain(fed, chain, {}, {.features = features});
      });
}

std::optional<DrawnTree> FeatureDrafter::draw_tree(const TreeRequest& tree) {
  const ModuleDrawing& modules = options_.modules;
  return draw_behind(std::ssize(tree.parents) - 1, modules.can_draw_tree,
                     [&](TokenSpan fed, const Tensor& features) {
                       return modules_.size() > 1
                                  ? modules.draw_tree(tree, {fed, features, newest_})
                                  : modules_.front()->draw_tree(fed, tree, {},
                                                                {.features = features});
                     });
}

std::optional<DraftRoom> FeatureDrafter::begin_draft(const DraftContext& context) {
  target_features_.collect(context);
  committed_ = context.committed;
  const int64_t room = modules_.front()->max_length() - target_features_.known();
  if (room < 0) {
    return std::nullopt;
  }
  prompt_seconds_ = context.prompt_seconds;
  nodes_.clear();
  return DraftRoom{.evaluated = room};
}

}  // namespace specdec
