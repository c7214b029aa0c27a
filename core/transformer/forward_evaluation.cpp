#include "core/transformer/forward_evaluation.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/prefill_size.h"
#include "core/transformer/forward_checks.h"
#include "core/transformer/forward_parts.h"

namespace specdec {

ForwardEvaluation::ForwardEvaluation(Ops& ops, const TransformerWeights& weights, KvStore& store,
                                     const TransformerOptions& options)
    : ops_(ops),
      weights_(weights),
      store_(store),
      results_on_host_(options.results_on_host),
      hooks_(options.hooks),
      forbidden_(weights.config.vocab_size, options.usable_tokens, options.suppressed,
                 weights.place.device),
      workspace_(weights),
      outputs_(ops, weights, forbidden_),
      graphs_(ops, options.graphs),
      draft_graphs_(ops, options.graphs),
      prefill_graphs_(ops, options.prefill_graphs),
      layers_(ops, weights),
      all_layers_(first_layers(std::ssize(weights.plan))),
      first_sharing_(first_sharing(weights.plan)) {}

LayerList ForwardEvaluation::layers_of(const ForwardOptions& options) const {
  return options.layers.empty() ? all_layers_ : evaluated_layers(options.layers, weights_.plan);
}

ForwardResult ForwardEvaluation::run(const TokenBatch& batch, const ForwardOptions& options,
                                     const LayerList& layers, int64_t nodes, bool are_uploaded) {
  const BatchTables& tables = *store_.describe(0).tables;
  const int64_t longest = tables.longest;
  Pass pass{.batch = batch,
            .options = options,
            .layers = layers,
            .nodes = nodes,
            .inputs = batch.inputs,
            .tokens = are_uploaded ? tables.tokens.narrow(0, 0, nodes) : batch.tokens,
            .by_library = options.library_products && nodes >= kFewestLibraryTokens};
  find_last_nodes(batch, nodes, last_);
  pass.scores_all = options.logits == Logits::kAll || std::ssize(last_) == nodes;
  layers_.reserve_positions(longest);
  Activations& a = workspace_.activations(pass.nodes);
  outputs_.reserve(options, pass.nodes, pass.scores_all ? pass.nodes : std::ssize(last_));
  layers_.look_up(pass.batch.tokens, a);
  read_ahead(*pass.layers);
  if (leaves_out(pass.batch, options, pass.nodes)) {
    evaluate_last(pass, a);
  } else if (ForwardGraphs* graphs = graphs_for(pass);
             graphs != nullptr && store_.make_resident(*pass.layers)) {
    SPECDEC_CHECK(longest > 0, "forward: tables that do not say how long their rows are");
    pass.context = launched_context(longest);
    place_inputs(pass, a);
    graphs->run(key_of(pass, a), [&] { evaluate_all(pass, a); });
  } else {
    evaluate_all(pass, a);
  }
  outputs_.give(options, pass.result);
  if (results_on_host_) {
    copy_to_host(ops_, options, pass.result);
  }
  return std::move(pass.result);
}

bool ForwardEvaluation::can_run_draft(const TokenBatch& fed, const ForwardOptions& options,
                                      int64_t size, int64_t nodes) {
  find_last_nodes(fed, size, last_);
  const ForwardInputs& inputs = fed.inputs;
  const bool are_given = inputs.embeddings.defined() || inputs.attention_inputs.defined();
  return !leaves_out(fed, options, size) && !are_given && !inputs.attention_bias.defined() &&
         records_nodes(*layers_of(options), nodes);
}

bool ForwardEvaluation::records_nodes(const std::vector<int64_t>& layers, int64_t nodes) const {
  return nodes <= Workspace::kMostSelected && draft_graphs_.enabled() &&
         weights_.source == nullptr && hooks_.empty() &&
         std::none_of(layers.begin(), layers.end(), [&](int64_t layer) {
           // Means and states are made for the nodes of a forward.
           return is_recurrent(weights_.plan[static_cast<size_t>(layer)]) ||
                  store_.describe(layer).pooled != nullptr;
         });
}

ForwardEvaluation::Pass ForwardEvaluation::pass_of_step(int64_t first,
                                                        const ForwardInputs& inputs) const {
  return {.batch = steps_.batch,
          .options = steps_.options,
          .layers = all_layers_,
          .nodes = inputs.embeddings.size(0),
          .inputs = inputs,
          .tokens = {},
          .context = steps_.context,
          .first = first};
}

bool ForwardEvaluation::begin_steps(std::span<const int64_t> sizes, GraphKey& key) {
  if (!store_.make_resident(*all_layers_)) {
    return false;
  }
  const int64_t longest = store_.describe(0).tables->longest;
  layers_.reserve_positions(longest);
  steps_.context = launched_context(longest);
  const Activations& first = workspace_.activations(sizes.front());
  const GraphKey& own = key_of(pass_of_step(0, {.embeddings = first.residual}), first);
  key.insert(key.end(), own.begin(), own.end());
  // Takes the memory now, which a graph cannot. A draft's key says the sizes, and up to 64 nodes
  // never move: no address is needed.
  for (const int64_t nodes : sizes) {
    (void)workspace_.activations(nodes);
  }
  return true;
}

Tensor ForwardEvaluation::run_step(int64_t first, const ForwardInputs& inputs) {
  Pass pass = pass_of_step(first, inputs);
  Activations& a = workspace_.activations(pass.nodes);
  evaluate_layers(pass, a);
  return a.residual;
}

bool ForwardEvaluation::run_draft(const TokenBatch& fed, const ForwardOptions& options,
                                  const LayerList& layers, const DraftSteps& steps,
                                  const StepSurroundings* around) {
  const BatchTables& tables = *store_.describe(0).tables;
  const int64_t size = last_.back() + 1;
  Pass pass{.batch = fed,
            .options = options,
            .layers = layers,
            .nodes = size,
            .inputs = {},
            .tokens = tables.tokens.narrow(0, 0, size),
            .context = launched_context(tables.longest)};
  layers_.reserve_positions(tables.longest);
  outputs_.reserve(options, size, steps.widest());
  Activations& of_fed = workspace_.activations(size);
  key_of(pass, of_fed);
  for (const int64_t nodes : steps.sizes) {  // takes the memory now: see begin_steps
    (void)workspace_.activations(nodes);
  }
  key_.insert(key_.end(), steps.key.begin(), steps.key.end());
  if (!draft_graphs_.knows(key_) || !store_.make_resident(*pass.layers)) {
    outputs_.release();
    return false;
  }
  if (around != nullptr) {
    around->place();
  }
  const auto logits_of = [&](int64_t step, const Tensor& tokens) {
    if (step > 0) {
      pass.first += pass.nodes;
      pass.nodes = steps.sizes[static_cast<size_t>(step - 1)];
      pass.tokens = tokens;
    }
    Activations& a = workspace_.activations(pass.nodes);
    pass.scores_all = step > 0 || size == 1;
    if (around == nullptr) {
      evaluate_all(pass, a);
      return outputs_.logits(pass.scores_all ? pass.nodes : 1);
    }
    pass.inputs = around->enter(step, pass.tokens);
    evaluate_layers(pass, a);
    return around->logits(step, pass.scores_all ? a.residual : a.last);
  };
  draft_graphs_.run(key_, [&] { draw_steps(steps, logits_of); });
  outputs_.release();
  return true;
}

Tensor ForwardEvaluation::head(const Tensor& hidden) const {
  Tensor logits = head_logits(ops_, weights_, hidden);
  ops_.forbid(forbidden_, logits);
  return logits;
}

GraphCounts ForwardEvaluation::graph_counts() const {
  return graphs_.counts() + draft_graphs_.counts() + prefill_graphs_.counts();
}

void ForwardEvaluation::place_inputs(Pass& pass, Activations& a) {
  ForwardInputs& inputs = pass.inputs;
  if (inputs.attention_inputs.defined()) {
    ops_.copy(plain_input(inputs.attention_inputs, a.residual), a.attention_inputs);
    inputs.attention_inputs = a.attention_inputs;
  }
  if (inputs.embeddings.defined()) {
    ops_.copy(plain_input(inputs.embeddings, a.residual), a.residual);
    inputs.embeddings = a.residual;
    return;
  }
  pass.tokens = placed_tokens(pass.tokens);
}

Tensor ForwardEvaluation::placed_tokens(const Tensor& tokens) {
  Tensor placed = store_.describe(0).tables->tokens.narrow(0, 0, tokens.size(0));
  if (placed.const_data_ptr() != tokens.const_data_ptr()) {
    // Tensors made in inference mode may not be written outside of it.
    const c10::InferenceMode inference;
    placed.copy_(tokens);
  }
  return placed;
}

void ForwardEvaluation::evaluate_layers(Pass& pass, Activations& a) {
  begin(pass, a);
  run_layers(*pass.layers, {}, a, pass);
  layers_.leave(a);
}

void ForwardEvaluation::evaluate_all(Pass& pass, Activations& a) {
  evaluate_layers(pass, a);
  if (pass.scores_all) {
    outputs_.write(a.residual, a.residual);
  } else {
    outputs_.write(a.residual, last_.size() == 1 ? a.last : rows_of_nodes(a.residual, last_));
  }
}

void ForwardEvaluation::evaluate_last(Pass& pass, Activations& a) {
  begin(pass, a);
  const std::span<const int64_t> layers(*pass.layers);
  const auto first = std::lower_bound(layers.begin(), layers.end(), first_sharing_);
  const auto before = static_cast<size_t>(first - layers.begin());
  run_layers(layers.first(before), {}, a, pass);
  if (pass.options.logits == Logits::kNone) {
    return;
  }
  const Tensor chosen = at::tensor(last_, at::kLong).to(weights_.place.device);
  Activations& own = workspace_.selected(a, chosen);
  run_layers(layers.subspan(before), chosen, own, pass);
  layers_.leave(own);
  outputs_.write(own.residual, own.residual);
}

ForwardGraphs* ForwardEvaluation::graphs_for(const Pass& pass) {
  ForwardGraphs& graphs = pass.nodes <= Workspace::kMostSelected ? graphs_ : prefill_graphs_;
  const bool is_recordable = graphs.enabled() && !pass.by_library && on_disk_.empty() &&
                             outputs_.are_kept() && hooks_.empty() &&
                             (pass.scores_all || last_.size() == 1) &&
                             !pass.inputs.attention_bias.defined();
  return is_recordable ? &graphs : nullptr;
}

const GraphKey& ForwardEvaluation::key_of(const Pass& pass, const Activations& a) {
  key_.assign({pass.nodes, pass.context, static_cast<int64_t>(pass.options.kv_read),
               pass.inputs.embeddings.defined() ? 1 : 0});
  add_address(a.residual, key_);  // moves for prefills alone
  outputs_.add_addresses(key_);
  add_tables(*store_.describe(0).tables, key_);
  for (const RopeTable& table : layers_.rotary_tables()) {
    add_address(table.cos(), key_);
    add_address(table.sin(), key_);
  }
  for (const int64_t layer : *pass.layers) {
    key_.push_back(layer);
    const KvView view = store_.describe(layer);
    add_pages(view, key_);
    if (view.states != nullptr) {
      add_states(*view.states, key_);
    }
  }
  return key_;
}

bool ForwardEvaluation::leaves_out(const TokenBatch& batch, const ForwardOptions& options,
                                   int64_t nodes) const {
  const int64_t rows = std::ssize(last_);
  const bool captured = std::any_of(options.capture_layers.begin(), options.capture_layers.end(),
                                    [this](int64_t layer) { return layer >= first_sharing_; });
  return first_sharing_ < std::ssize(*all_layers_) && hooks_.empty() &&
         options.hidden != Hidden::kAll && options.logits != Logits::kAll && !captured &&
         rows < nodes && rows <= Workspace::kMostSelected &&
         !batch.inputs.attention_bias.defined() && !batch.inputs.attention_inputs.defined();
}

void ForwardEvaluation::run_layers(std::span<const int64_t> layers, const Tensor& chosen,
                                   Activations& a, Pass& pass) {
  BatchTables tables;
  for (const int64_t layer : layers) {
    KvView view = pass.context > 0 ? store_.describe(layer) : store_.view(layer);
    view.read = pass.options.kv_read;
    if (chosen.defined() || pass.context > 0) {
      if (tables.nodes == 0) {  // the same for all layers
        tables = chosen.defined() ? selected_nodes(*view.tables, chosen)
                                  : neighbouring_nodes(*view.tables, pass.first, pass.nodes);
        tables.longest = std::max(tables.longest, pass.context);
      }
      view.tables = &tables;
    }
    // Layers that share keys are never a library's: a token there has the same bits whoever asks
    // for how many.
    const bool by_library = pass.by_library && layer < first_sharing_;
    if (hooks_.empty()) {
      layers_.run(static_cast<size_t>(layer), view, pass.inputs, a, by_library);
    } else {
      layers_.run(hooks_, static_cast<size_t>(layer), view, pass.batch, a, by_library);
    }
    outputs_.capture(layer, a.residual);
  }
}

void ForwardEvaluation::begin(const Pass& pass, Activations& a) {
  const Tensor& embeddings = pass.inputs.embeddings;
  if (!embeddings.defined()) {
    ops_.embed_rows(weights_.embedding, pass.tokens, weights_.embedding_scale, a.residual);
  } else if (!embeddings.is_same(a.residual)) {
    ops_.copy(plain_input(embeddings, a.residual), a.residual);
  }
  layers_.begin(a);
}

void ForwardEvaluation::read_ahead(const std::vector<int64_t>& layers) {
  if (weights_.source == nullptr) {
    return;
  }
  on_disk_.clear();
  for (const int64_t layer : layers) {
    const int64_t number = weights_.layers[static_cast<size_t>(layer)].in_source;
    if (number >= 0) {
      on_disk_.push_back(number);
    }
  }
  weights_.source->prefetch(on_disk_);
}

}  // namespace specdec
