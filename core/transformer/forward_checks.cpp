#include "core/transformer/forward_checks.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/prefill_size.h"

namespace specdec {

void check_decodes(const TransformerInfo& model) {
  if (model.config.bidirectional) {
    throw Error(
        "this checkpoint sets use_bidirectional_attention (EmbeddingGemma): every token sees the "
        "later ones, so it cannot decode token by token. 'specdec embed' gives its embeddings, "
        "'specdec logits' its hidden states.");
  }
}

void check_adapters_may_change(const KvStore& store) {
  for (const RowId row : store.rows()) {
    if (store.length(row) + store.pending(row) > 0) {
      throw Error(fmt::format(
          "the adapters cannot change while row {} holds tokens ({} kept, {} pending), whose "
          "keys and values are those of the adapters before: truncate it to 0 first",
          row, store.length(row), store.pending(row)));
    }
  }
}

void check_vocabulary(const TransformerInfo& model, const Tensor& tokens) {
  if (!tokens.is_cpu()) {
    return;
  }
  const Tensor host = tokens.contiguous();
  const Token* values = host.const_data_ptr<Token>();
  const int64_t vocab = model.config.vocab_size;
  for (int64_t i = 0; i < host.size(0); ++i) {
    if (values[i] < 0 || values[i] >= vocab) {
      throw Error(
          fmt::format("token {} lies outside the model's vocabulary of {} entries (0 to {})",
                      values[i], vocab, vocab - 1));
    }
  }
}

static void check_embeddings(const TransformerInfo& model, const TokenBatch& batch) {
  const Tensor& embeddings = batch.inputs.embeddings;
  SPECDEC_CHECK(embeddings.dim() == 2 && embeddings.size(1) == model.config.hidden_size,
                "forward: embeddings should be [n, {}]", model.config.hidden_size);
  SPECDEC_CHECK(!batch.tokens.defined() || batch.tokens.size(0) == embeddings.size(0),
                "forward: {} tokens beside {} embeddings", batch.tokens.size(0),
                embeddings.size(0));
  if (model.plan.front().per_layer_size > 0 && !batch.tokens.defined()) {
    throw Error(
        "forward: this model's layers look up inputs of their own for each token, so embeddings "
        "alone are not enough: give tokens beside them");
  }
}

int64_t check_nodes(const TransformerInfo& model, const TokenBatch& batch) {
  const ForwardInputs& inputs = batch.inputs;
  SPECDEC_CHECK(inputs.embeddings.defined() || batch.tokens.defined(),
                "forward: neither tokens nor embeddings");
  if (batch.tokens.defined()) {
    SPECDEC_CHECK(batch.tokens.dim() == 1 && batch.tokens.scalar_type() == at::kInt,
                  "forward: tokens should be [n] int32");
    if (!inputs.embeddings.defined() || model.plan.front().per_layer_size > 0) {
      check_vocabulary(model, batch.tokens);
    }
  }
  if (inputs.embeddings.defined()) {
    check_embeddings(model, batch);
  }
  const int64_t nodes =
      inputs.embeddings.defined() ? inputs.embeddings.size(0) : batch.tokens.size(0);
  SPECDEC_CHECK(nodes > 0, "forward: no tokens");
  SPECDEC_CHECK(!inputs.features.defined(),
                "forward: this model decodes tokens; it does not continue a target's features");
  const Tensor& joined = inputs.attention_inputs;
  SPECDEC_CHECK(
      joined.defined() == model.plan.front().joined_inputs &&
          (!joined.defined() || (joined.dim() == 2 && joined.size(0) == nodes &&
                                 joined.size(1) == model.config.hidden_size)),
      "forward: attention_inputs should be [{}, {}] where the layers join them, and undefined "
      "elsewhere",
      nodes, model.config.hidden_size);
  return nodes;
}

void check_bias(const TokenBatch& batch, int64_t nodes, const KvStore& store) {
  const Tensor& bias = batch.inputs.attention_bias;
  SPECDEC_CHECK(bias.dim() == 2 && bias.size(0) == nodes && bias.scalar_type() == at::kFloat,
                "forward: attention_bias should be [{}, columns] float32", nodes);
  const Tensor host = bias.cpu().contiguous();
  std::map<RowId, int64_t> next;  // column of each row's next node
  for (int64_t node = 0; node < nodes; ++node) {
    const RowId row = batch.rows.empty() ? 0 : batch.rows[static_cast<size_t>(node)];
    const auto [column, is_new] = next.try_emplace(row, 0);
    if (is_new) {
      column->second = store.length(row) + store.pending(row);
    }
    const int64_t own = column->second++;
    const float* values = host.const_data_ptr<float>() + node * host.size(1);
    for (int64_t j = 0; j < host.size(1); ++j) {
      if (std::isnan(values[j]) || values[j] == std::numeric_limits<float>::infinity()) {
        throw Error(fmt::format(
            "forward: attention_bias of node {} for column {} is {}: give numbers, or -inf for "
            "what the node is not to see",
            node, j, values[j]));
      }
    }
    if (own < host.size(1) && std::isinf(values[own])) {
      throw Error(fmt::format(
          "forward: attention_bias hides node {} from itself (column {} is -inf): a node that sees "
          "nothing has no attention; hide it from the others instead",
          node, own));
    }
  }
}

LayerList first_layers(int64_t count) {
  std::vector<int64_t> layers(static_cast<size_t>(count));
  std::iota(layers.begin(), layers.end(), 0);
  return std::make_shared<const std::vector<int64_t>>(std::move(layers));
}

LayerList evaluated_layers(const std::vector<int64_t>& layers, const std::vector<LayerPlan>& plan) {
  SPECDEC_CHECK(
      layers.front() >= 0 && layers.back() < std::ssize(plan) &&
          std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end(),
      "forward: the layers [{}] of a model with {}, which should ascend", fmt::join(layers, ", "),
      plan.size());
  for (const int64_t layer : layers) {
    const int64_t source = plan[static_cast<size_t>(layer)].kv_source;
    if (source >= 0 && !std::binary_search(layers.begin(), layers.end(), source)) {
      throw Error(fmt::format("layer {} reads the keys and values of layer {}, which is left out",
                              layer, source));
    }
  }
  return std::make_shared<const std::vector<int64_t>>(layers);
}

void check_captured(const std::vector<int64_t>& captured, const std::vector<int64_t>& evaluated) {
  for (const int64_t layer : captured) {
    SPECDEC_CHECK(std::find(evaluated.begin(), evaluated.end(), layer) != evaluated.end(),
                  "forward: cannot capture layer {}, which is not evaluated", layer);
  }
}

void check_library_products(const TokenBatch& batch, const ForwardOptions& options, const Ops& ops,
                            const KvStore& store) {
  if (!options.library_products) {
    return;
  }
  if (!ops.has_library()) {
    throw Error(
        "no library multiplies prompts on this model's device: use device: cuda, or "
        "prefill_products: exact");
  }
  const RowId row = batch.rows.empty() ? 0 : batch.rows.front();
  const bool is_one_row =
      std::count(batch.rows.begin(), batch.rows.end(), row) == std::ssize(batch.rows);
  SPECDEC_CHECK(is_one_row && batch.parents.empty() && options.logits != Logits::kAll &&
                    options.layers.empty() && options.kv_read == KvRead::kAll &&
                    !batch.inputs.attention_bias.defined() && store.pending(row) == 0 &&
                    store.length(row) % kPrefillTokens == 0,
                "library_products: no piece of a prompt, behind {} tokens", store.length(row));
}

void check_kv_read(KvRead read, const KvStore& store) {
  if (read == KvRead::kUpperHalf && store.describe(0).format != KvFormat::kHierarchical) {
    throw Error(fmt::format(
        "reading the upper half of keys and values needs a cache of format hierarchical, and this "
        "one is in {}: give the model cache: {{type: paged, format: hierarchical, lossy: true}}",
        kv_format_name(store.describe(0).format)));
  }
}

}  // namespace specdec
