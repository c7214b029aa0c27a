#include "core/transformer/heads/feature_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/draft_vocabulary.h"
#include "core/error.h"
#include "core/kernels/ops.h"
#include "core/transformer/forward_checks.h"

namespace specdec {
namespace {

at::TensorOptions placed_numbers(const TransformerWeights& target) {
  return at::TensorOptions(target.compute_dtype()).device(target.place.device);
}

/// The rows of the last `count` nodes.
Tensor last_rows(const Tensor& nodes, int64_t count) {
  return nodes.size(0) == count ? nodes : nodes.narrow(0, nodes.size(0) - count, count);
}

}  // namespace
FeatureModel::FeatureModel(std::unique_ptr<FeatureHead> head,
                           std::shared_ptr<const TransformerWeights> target,
                           const KvStoreFactory& store, const TransformerOptions& options)
    : head_(std::move(head)),
      target_(std::move(target)),
      ops_(ops_of(options, *target_)),
      step_memories_(ops_),
      fed_memories_{StepMemories(ops_), StepMemories(ops_)},
      scored_memories_(ops_),
      fed_logits_memory_(ops_, 1),
      logits_memory_(columns(), placed_numbers(*target_)),
      graphs_(*ops_, options.graphs) {
  TransformerOptions engine = options;
  engine.ops = ops_;  // a graph holds both the head's ops and the layers'
  engine_ = make_layer_engine(head_->take_layers(), *target_, store, engine);
}

ForwardResult FeatureModel::forward(const TokenBatch& batch, const ForwardOptions& options) {
  SPECDEC_CHECK(options.capture_layers.empty() && options.layers.empty() &&
                    !batch.inputs.embeddings.defined() &&
                    !batch.inputs.attention_inputs.defined() && batch.tokens.defined(),
                "forward: a head takes tokens and features, and has no layers to choose from");
  check_vocabulary(*target_, batch.tokens);
  return forward_checked(batch, options);
}

ForwardResult FeatureModel::forward_checked(const TokenBatch& batch,
                                            const ForwardOptions& options) {
  std::optional<ForwardResult> result = forward_graph(batch, options);
  return result ? std::move(*result) : evaluate(enter(batch), options);
}

std::optional<ForwardResult> FeatureModel::forward_graph(const TokenBatch& batch,
                                                         const ForwardOptions& options) {
  if (!graphs_.enabled() || batch.inputs.attention_bias.defined()) {
    return std::nullopt;
  }
  const int64_t nodes = batch.tokens.size(0);
  const bool is_whole = batch.rows.empty() || std::ssize(batch.rows) == nodes;
  if (nodes == 0 || batch.tokens.scalar_type() != at::kInt || !is_whole) {
    return std::nullopt;  // evaluate() says what is wrong
  }
  std::vector<int64_t> last;
  find_last_nodes(batch, nodes, last);
  if (options.logits == Logits::kLast && last.size() > 1) {
    return std::nullopt;
  }
  const bool own = batch.inputs.own_features;
  const int64_t of_scored = options.logits == Logits::kAll ? nodes : 1;
  const int64_t scored = options.logits == Logits::kNone ? 0 : of_scored;
  const int64_t given = options.hidden == Hidden::kAll      ? nodes
                        : options.hidden == Hidden::kScored ? scored
                                                            : 0;  // rows of features
  GraphKey key = {nodes, scored, given, own ? 1 : 0};
  const auto tokens = engine_->begin_forward(
      {.tokens = batch.tokens, .rows = batch.rows, .parents = batch.parents}, key);
  if (!tokens) {
    return std::nullopt;
  }
  try {
    const Tensor features = features_of(batch);
    ForwardResult result;
    if (scored > 0) {
      result.logits = logits_memory_.rows(scored);
    }
    add_address(result.logits, key);
    StepMemory& memory = fed_memories_[own ? 1 : 0].of(nodes);
    Ops& kept = memory.gathered();
    const Tensor placed = placed_features(kept, features);
    Tensor hidden = kept.result(nodes, target_->config.hidden_size, features.options());
    graphs_.run(key, [&] {
      const Tensor output =
          engine_->run_step(0, head_->enter(memory.entering(), *tokens, placed, own));
      const Tensor feature = head_->feature(memory.leaving(), output);
      if (given > 0) {
        ops_->copy(feature, hidden);
      }
      if (scored > 0) {
        head_->logits(scored_memories_.of(scored).leaving(), last_rows(output, scored),
                      last_rows(feature, scored), result.logits);
      }
    });
    if (given > 0) {  // whoever gets them keeps them
      result.final_hidden = ops_->result(given, hidden.size(1), hidden.options());
      ops_->copy(last_rows(hidden, given), result.final_hidden);
    }
    give(options, result);
    return result;
  } catch (...) {
    engine_->undo_forward();
    throw;
  }
}

Tensor FeatureModel::features_of(const TokenBatch& batch) const {
  const int64_t nodes = batch.tokens.size(0);
  const bool own = batch.inputs.own_features;
  const int64_t width = own ? target_->config.hidden_size : head_->feature_width();
  const at::TensorOptions place = placed_numbers(*target_);
  const Tensor features = batch.inputs.features.defined() ? batch.inputs.features.to(place)
                                                          : at::zeros({nodes, width}, place);
  SPECDEC_CHECK(features.dim() == 2 && features.size(0) == nodes && features.size(1) == width,
                "forward: features should be [{}, {}]", nodes, width);
  return own ? features.contiguous() : prepared(features);
}

Tensor FeatureModel::prepared(const Tensor& features) const {
  return head_->prepared(*ops_, features.to(placed_numbers(*target_)).contiguous());
}

Tensor FeatureModel::placed_features(Ops& kept, const Tensor& features) {
  Tensor placed = kept.result(features.size(0), features.size(1), features.options());
  kept.copy(features, placed);
  return placed;
}

TokenBatch FeatureModel::enter(const TokenBatch& batch) const {
  ForwardInputs inputs =
      head_->enter(*ops_, batch.tokens, features_of(batch), batch.inputs.own_features);
  inputs.attention_bias = batch.inputs.attention_bias;
  return {.tokens = batch.tokens,
          .rows = batch.rows,
          .parents = batch.parents,
          .inputs = std::move(inputs)};
}

ForwardResult FeatureModel::evaluate(const TokenBatch& entered, const ForwardOptions& options) {
  const ForwardResult output =
      engine_->forward(entered, {.logits = Logits::kNone, .hidden = Hidden::kAll});
  try {
    return finish(entered, output.final_hidden, options);
  } catch (...) {
    engine_->undo_forward();
    throw;
  }
}

ForwardResult FeatureModel::finish(const TokenBatch& batch, const Tensor& output,
                                   const ForwardOptions& options) const {
  std::vector<int64_t> last;
  find_last_nodes(batch, output.size(0), last);
  const auto scored = [&](const Tensor& nodes) {
    return options.logits == Logits::kLast ? rows_of_nodes(nodes, last) : nodes;
  };
  const Tensor features = head_->feature(*ops_, output);
  ForwardResult result;
  if (options.logits != Logits::kNone) {
    const Tensor states = scored(output);
    result.logits = ops_->result(states.size(0), columns(), states.options());
    head_->logits(*ops_, states, scored(features), result.logits);
  }
  if (options.hidden == Hidden::kAll) {
    result.final_hidden = features;
  } else if (options.hidden == Hidden::kScored && options.logits != Logits::kNone) {
    result.final_hidden = scored(features);
  }
  give(options, result);
  return result;
}

void FeatureModel::give(const ForwardOptions& options, ForwardResult& result) const {
  if (options.logits != Logits::kNone && options.logits_use == LogitsUse::kSampler) {
    result.sampler = ops_->sampler();
  }
  copy_to_host(*ops_, options, result);
  const DraftVocabulary* vocabulary = head_->draft_vocabulary();
  if (vocabulary != nullptr && !options.draft_columns && result.logits.defined()) {
    result.logits = vocabulary->widened(result.logits);
  }
}

bool FeatureModel::draws_drafts() const { return ops_->sampler() != nullptr; }

int64_t FeatureModel::columns() const {
  const DraftVocabulary* vocabulary = head_->draft_vocabulary();
  return vocabulary == nullptr ? vocab_size() : vocabulary->columns();
}

std::optional<DrawnChain> FeatureModel::draw_chain(TokenSpan fed, const ChainRequest& chain,
                                                   const ForwardOptions&,
                                                   const ForwardInputs& inputs, RowId row) {
  ChainRequest own = chain;
  own.vocabulary = head_->draft_vocabulary();
  return draw_in_row(*this, row, [&] {
    const auto drawing = ops_->sampler()->begin_chain(own, columns());
    draw(fed_batch(fed, inputs, row), steps_of(*drawing, chain.count));
    return drawing->read();
  });
}

std::optional<DrawnTree> FeatureModel::draw_tree(TokenSpan fed, const TreeRequest& tree,
                                                 const ForwardOptions&, const ForwardInputs& inputs,
                                                 RowId row) {
  TreeRequest own = tree;
  own.vocabulary = head_->draft_vocabulary();
  return draw_in_row(*this, row, [&] {
    const auto drawing = ops_->sampler()->begin_tree(own, columns());
    const DraftSteps steps = steps_of(*drawing, tree.parents);
    draw(fed_batch(fed, inputs, row), steps);
    return drawing->read(std::ssize(steps.sizes) + 1);
  });
}

void FeatureModel::draw(const TokenBatch& fed, const DraftSteps& steps) {
  SPECDEC_CHECK(!fed.rows.empty() && !fed.inputs.own_features,
                "a draft is drawn behind tokens and the target's features");
  check_vocabulary(*target_, fed.tokens);
  memory_ = &step_memories_.of(steps.widest());
  StepMemory* fed_memory = nullptr;
  Tensor placed;
  const StepSurroundings around{
      .place =
          [&] {
            fed_memory = &fed_memories_[0].of(fed.tokens.size(0));
            placed = placed_features(fed_memory->gathered(), features_of(fed));
          },
      .enter =
          [&](int64_t step, const Tensor& tokens) {
            return step == 0
                       ? head_->enter(fed_memory->entering(), tokens, placed, false)
                       : enter_step(tokens, followed_features(memory_->gathered(), step_feature_,
                                                              steps.parents_in_step(step)));
          },
      .logits =
          [this](int64_t, const Tensor& output) {
            leave_step(output);
            return step_logits();
          }};
  if (engine_->draw_graph({.tokens = fed.tokens, .rows = fed.rows}, steps, around)) {
    return;
  }
  ForwardOptions options{.logits = Logits::kLast,
                         .logits_use = LogitsUse::kSampler,
                         .hidden = Hidden::kScored,
                         .keep_hidden = true,
                         .draft_columns = true};
  Tensor features;
  draw_steps(steps, [&](int64_t step, const Tensor& tokens) {
    TokenBatch batch = fed;
    if (step > 0) {
      options.logits = Logits::kAll;
      batch = steps.batch(step, tokens, fed);
      features = followed_features(*ops_, features, steps.parents_in_step(step));
      batch.inputs = {.features = features, .own_features = true};
    }
    ForwardResult result = forward_checked(batch, options);
    features = result.final_hidden;
    return result.logits;
  });
}

ForwardInputs FeatureModel::enter_step(const Tensor& tokens, const Tensor& features) {
  return head_->enter(memory_->entering(), tokens, features, /*own=*/true);
}

void FeatureModel::leave_step(const Tensor& output) {
  leaving_ = &memory_->leaving();
  step_output_ = output;
  step_feature_ = head_->feature(*leaving_, output);
}

bool FeatureModel::begin_steps(TokenSpan fed, const DraftSteps& steps, int64_t count,
                               GraphKey& key) {
  check_vocabulary(*target_, token_tensor(fed));
  const auto tokens = engine_->begin_steps(fed, steps, count, key);
  fed_tokens_ = tokens.value_or(Tensor());
  int64_t widest = 1;
  for (int64_t step = 0; step < count; ++step) {
    widest = std::max(widest, steps.sizes[static_cast<size_t>(step)]);
  }
  memory_ = &step_memories_.of(widest);
  return tokens.has_value();
}

Tensor FeatureModel::fed_output(const Tensor& features, bool own) {
  StepMemory& memory = fed_memories_[own ? 1 : 0].of(features.size(0));
  return engine_->run_step(0, head_->enter(memory.entering(), fed_tokens_, features, own));
}

Tensor FeatureModel::run_fed(const Tensor& features, bool own) {
  const Tensor output = fed_output(features, own);
  StepMemory& memory = fed_memories_[own ? 1 : 0].of(features.size(0));
  Tensor after = head_->feature(memory.leaving(), output);
  fed_output_ = last_rows(output, 1);
  fed_feature_ = last_rows(after, 1);
  return after;
}

void FeatureModel::keep_fed(const Tensor& features, bool own) { (void)fed_output(features, own); }

Tensor FeatureModel::fed_logits() {
  leaving_ = &fed_logits_memory_.leaving();
  step_output_ = fed_output_;
  step_feature_ = fed_feature_;
  return step_logits();
}

Tensor FeatureModel::run_step(int64_t first, const StepInputs& inputs) {
  const Tensor features = followed_features(memory_->gathered(), inputs.features, inputs.parents);
  leave_step(engine_->run_step(first, enter_step(inputs.tokens, features)));
  return step_feature_;
}

Tensor FeatureModel::step_logits() {
  Tensor logits = leaving_->result(step_output_.size(0), columns(), step_output_.options());
  head_->logits(*leaving_, step_output_, step_feature_, logits);
  return logits;
}

void FeatureModel::commit(std::span<const int64_t> path, RowId row) { engine_->commit(path, row); }
void FeatureModel::truncate(int64_t length, RowId row) { engine_->truncate(length, row); }
int64_t FeatureModel::rewindable_to(int64_t length, RowId row) const {
  return engine_->rewindable_to(length, row);
}
RowId FeatureModel::open() { return engine_->open(); }
RowId FeatureModel::fork(RowId row, int64_t length) { return engine_->fork(row, length); }
void FeatureModel::close(RowId row) { engine_->close(row); }
int64_t FeatureModel::length(RowId row) const { return engine_->length(row); }
int64_t FeatureModel::pending(RowId row) const { return engine_->pending(row); }
int64_t FeatureModel::vocab_size() const { return target_->config.vocab_size; }
const DraftVocabulary* FeatureModel::draft_vocabulary() const { return head_->draft_vocabulary(); }
int64_t FeatureModel::max_length() const { return engine_->max_length(); }

std::unique_ptr<FeatureModel> make_eagle_model(const std::shared_ptr<const EagleHead>& head,
                                               std::shared_ptr<const TransformerWeights> target,
                                               const KvStoreFactory& store,
                                               const TransformerOptions& options) {
  auto eagle = eagle_feature_head(head, target);
  return std::make_unique<FeatureModel>(std::move(eagle), std::move(target), store, options);
}

std::unique_ptr<FeatureModel> make_mtp_model(const std::shared_ptr<const MtpHead>& head,
                                             size_t module,
                                             std::shared_ptr<const TransformerWeights> target,
                                             const KvStoreFactory& store,
                                             const TransformerOptions& options) {
  auto mtp = mtp_feature_head(head, module, target);
  return std::make_unique<FeatureModel>(std::move(mtp), std::move(target), store, options);
}

}  // namespace specdec
