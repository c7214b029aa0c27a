#include "core/language_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "core/cache_room_error.h"
#include "core/error.h"
#include "core/prefill_size.h"

namespace specdec {
namespace {

/// [n, hidden] of all pieces; undefined when the model gives none.
Tensor joined(const std::vector<Tensor>& pieces) {
  if (pieces.size() == 1 || !pieces.front().defined()) {
    return pieces.front();
  }
  return at::cat(pieces);
}

ForwardResult join(std::vector<ForwardResult> pieces, Hidden wanted) {
  ForwardResult whole;
  whole.logits = pieces.back().logits;
  whole.best = pieces.back().best;
  whole.sampler = pieces.back().sampler;
  std::vector<Tensor> hidden;
  std::vector<std::vector<Tensor>> captured(pieces.back().captured.size());
  for (const ForwardResult& piece : pieces) {
    hidden.push_back(piece.final_hidden);
    whole.read_backs += piece.read_backs;
    for (size_t layer = 0; layer < captured.size(); ++layer) {
      captured[layer].push_back(piece.captured[layer]);
    }
  }
  whole.final_hidden = wanted == Hidden::kAll ? joined(hidden) : hidden.back();
  for (const std::vector<Tensor>& layer : captured) {
    whole.captured.push_back(joined(layer));
  }
  return whole;
}

constexpr Tensor ForwardInputs::*kInputs[] = {&ForwardInputs::features, &ForwardInputs::embeddings,
                                              &ForwardInputs::attention_inputs,
                                              &ForwardInputs::attention_bias};

/// Every input of a forward has a row for each token.
void check_inputs(const ForwardInputs& inputs, size_t tokens) {
  for (Tensor ForwardInputs::*input : kInputs) {
    const Tensor& rows = inputs.*input;
    SPECDEC_CHECK(
        !rows.defined() || (rows.dim() > 0 && rows.size(0) == static_cast<int64_t>(tokens)),
        "features, embeddings, attention_inputs and attention_bias should have {} rows, one for "
        "each token",
        tokens);
  }
}

/// Inputs of `tokens` tokens from `begin` on.
ForwardInputs narrowed(ForwardInputs inputs, size_t begin, size_t tokens) {
  for (Tensor ForwardInputs::*input : kInputs) {
    if ((inputs.*input).defined()) {
      inputs.*input =
          (inputs.*input).narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(tokens));
    }
  }
  return inputs;
}

}  // namespace

void LanguageModel::check_tokens(TokenSpan tokens, int64_t first_position) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size()) {
      throw Error(fmt::format(
          "token {} at position {} is outside the model's vocabulary of {} (0 to {})", tokens[i],
          first_position + static_cast<int64_t>(i), vocab_size(), vocab_size() - 1));
    }
  }
}

void LanguageModel::check_nothing_pending(RowId row, const char* call) const {
  SPECDEC_CHECK(pending(row) == 0,
                "{}: {} pending nodes are left on row {}; commit or truncate them first", call,
                pending(row), row);
}

ForwardResult LanguageModel::feed(TokenSpan tokens, const ForwardOptions& options,
                                  const ForwardInputs& inputs) {
  const int64_t before = length();
  const size_t count =
      tokens.empty() ? static_cast<size_t>(inputs.embeddings.size(0)) : tokens.size();
  int64_t end = before;  // of the piece that is read
  try {
    std::vector<ForwardResult> pieces;
    constexpr auto kPiece = static_cast<size_t>(kPrefillTokens);
    for (size_t begin = 0; begin < count; begin += kPiece) {
      const size_t size = std::min(kPiece, count - begin);
      const bool last = begin + size == count;
      end += static_cast<int64_t>(size);
      ForwardOptions own = options;
      own.logits = last && options.logits != Logits::kNone ? Logits::kLast : Logits::kNone;
      pieces.push_back(
          forward({.tokens = tokens.empty() ? Tensor() : token_tensor(tokens.subspan(begin, size)),
                   .inputs = narrowed(inputs, begin, size)},
                  own));
      commit(chain_path(static_cast<int64_t>(size)));
    }
    return join(std::move(pieces), options.hidden);
  } catch (const CacheRoomError& error) {
    truncate(rewindable_to(before));
    throw error.of_text(end, before + static_cast<int64_t>(count));
  } catch (...) {
    truncate(rewindable_to(before));
    throw;
  }
}

void LanguageModel::check_prompt_size(int64_t size) const {
  if (size == 0) {
    throw Error("the prompt is empty: give at least one token (<bos> is enough)");
  }
  if (size > max_length()) {
    throw Error(fmt::format(
        "the prompt has {} tokens, but the model holds at most {}: shorten the prompt, or load the "
        "model with a larger max_length",
        size, max_length()));
  }
}

ForwardResult LanguageModel::prefill_from_embeddings(const Tensor& embeddings,
                                                     const ForwardOptions& options) {
  if (internals() == nullptr) {
    throw Error("this model takes tokens alone, no embeddings: it gives no embeddings of its own");
  }
  const int64_t hidden = internals()->hidden_size();
  SPECDEC_CHECK(
      embeddings.defined() && embeddings.dim() == 2 && embeddings.size(1) == hidden &&
          embeddings.is_floating_point(),
      "prefill_from_embeddings: the embeddings should be numbers [n, {}], one row for each token",
      hidden);
  check_prompt_size(embeddings.size(0));
  if (internals()->embeds_by_layer()) {
    throw Error(
        "this model's layers look up inputs of their own for each token, so embeddings alone are "
        "not enough: give tokens beside them, prefill(tokens, options, {.embeddings = ...})");
  }
  truncate(0);
  return feed({}, options, {.embeddings = embeddings});
}

ForwardResult LanguageModel::prefill(TokenSpan prompt, const ForwardOptions& options,
                                     const ForwardInputs& inputs) {
  check_prompt_size(std::ssize(prompt));
  check_tokens(prompt, 0);
  check_inputs(inputs, prompt.size());
  truncate(0);
  return feed(prompt, options, inputs);
}

Tensor LanguageModel::prefill_get_last_logits(TokenSpan prompt) {
  return prefill(prompt, {}).logits.select(0, 0);
}

Tensor LanguageModel::extend_get_last_logits(TokenSpan tokens) {
  return extend(tokens, {}).logits.select(0, 0);
}

ForwardResult LanguageModel::extend(TokenSpan tokens, const ForwardOptions& options,
                                    const ForwardInputs& inputs) {
  SPECDEC_CHECK(!tokens.empty(), "extend: there are no tokens to append");
  check_nothing_pending(0, "extend");
  SPECDEC_CHECK(!options.library_products, "extend: library_products are for prefill");
  const auto size = static_cast<int64_t>(tokens.size());
  if (length() + size > max_length()) {
    throw Error(
        fmt::format("{} tokens after {} kept ones do not fit: the model holds at most {}. Stop "
                    "earlier, or load the model with a larger max_length",
                    size, length(), max_length()));
  }
  check_tokens(tokens, length());
  check_inputs(inputs, tokens.size());
  return feed(tokens, options, inputs);
}

Tensor LanguageModel::decode_get_logits(TokenSpan tokens, std::span<const RowId> rows) {
  constexpr RowId kFirst[] = {0};
  if (rows.empty()) {
    rows = kFirst;
  }
  SPECDEC_CHECK(tokens.size() == rows.size(), "decode: {} tokens for {} rows", tokens.size(),
                rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowId row = rows[i];
    SPECDEC_CHECK(length(row) > 0, "decode: row {} holds nothing yet; prefill first", row);
    check_nothing_pending(row, "decode");
    if (length(row) >= max_length()) {
      throw Error(fmt::format(
          "row {} is full: it holds {} tokens and the model no more than {}. Stop earlier, or load "
          "the model with a larger max_length",
          row, length(row), max_length()));
    }
    check_tokens(tokens.subspan(i, 1), length(row));
  }
  Tensor logits =
      forward({.tokens = token_tensor(tokens), .rows = {rows.begin(), rows.end()}}).logits;
  const int64_t newest = 0;
  for (const RowId row : rows) {
    commit({&newest, 1}, row);
  }
  return logits;
}

ForwardResult LanguageModel::verify(const Draft& draft, const ForwardOptions& options) {
  SPECDEC_CHECK(draft.size() > 0 && draft.parents.size() == draft.tokens.size(),
                "verify: a draft of {} tokens and {} parents", draft.tokens.size(),
                draft.parents.size());
  SPECDEC_CHECK(length() > 0, "verify: the model holds nothing yet; prefill first");
  check_nothing_pending(0, "verify");
  if (length() + draft.size() > max_length()) {
    throw Error(
        fmt::format("a draft of {} nodes after {} kept tokens does not fit: the model holds at "
                    "most {}. Draft fewer, or load the model with a larger max_length",
                    draft.size(), length(), max_length()));
  }
  check_tokens(draft.tokens, length());
  return forward({.tokens = token_tensor(draft.tokens), .rows = {}, .parents = draft.parents},
                 options);
}

Tensor LanguageModel::verify_get_logits(const Draft& draft) { return verify(draft, {}).logits; }

std::optional<DrawnChain> LanguageModel::draw_chain(TokenSpan, const ChainRequest&,
                                                    const ForwardOptions&, const ForwardInputs&,
                                                    RowId) {
  SPECDEC_CHECK(false, "draw_chain: this model draws no drafts, as draws_drafts() says");
}

std::optional<DrawnTree> LanguageModel::draw_tree(TokenSpan, const TreeRequest&,
                                                  const ForwardOptions&, const ForwardInputs&,
                                                  RowId) {
  SPECDEC_CHECK(false, "draw_tree: this model draws no drafts, as draws_drafts() says");
}

Tensor token_tensor(TokenSpan tokens) {
  Tensor tensor = at::empty({static_cast<int64_t>(tokens.size())}, at::kInt);
  std::copy(tokens.begin(), tokens.end(), tensor.data_ptr<Token>());
  return tensor;
}

}  // namespace specdec
