// The parts of a forward, each checked against the whole: forward_parts MODEL
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/families/model.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/drafters/prompt_lookup.h"
#include "decoders/shapes/draft_length.h"
#include "decoders/speculative.h"
#include "decoders/verifiers/rejection.h"
#include "kv/paged_kv.h"

using namespace specdec;

namespace {

const std::vector<Token> kPrompt = {2, 5, 7, 5, 7, 5};

void check(bool holds, const std::string& what) {
  if (!holds) {
    throw Error("this does not hold: " + what);
  }
}

/// What a request is changed by.
struct Change {
  LogitBias bias = {};
  Tensor embeddings = {};
  Tensor prompt_logits = {};
};

/// Greedy tokens of a strategy; they come as they are decoded.
std::vector<Token> generate(DecodingStrategy& strategy, const Change& change) {
  CounterRandomness random(1);
  std::vector<Token> streamed;
  strategy.generate(
      {.prompt = kPrompt,
       .sampling = {.logit_bias = change.bias},
       .stop = {.max_new_tokens = 12},
       .random = random,
       .on_tokens =
           [&](TokenSpan tokens) { streamed.insert(streamed.end(), tokens.begin(), tokens.end()); },
       .embeddings = change.embeddings,
       .prompt_logits = change.prompt_logits});
  return streamed;
}

/// Prefills that give less, or are given other things than tokens.
void read_in_parts(TransformerModel& model) {
  const ForwardResult whole = model.prefill(kPrompt, {.hidden = Hidden::kAll});
  const auto [keys, values] = model.internals()->key_values(0, 0);
  const ForwardOptions states_only{.logits = Logits::kNone, .hidden = Hidden::kAll};
  const ForwardResult states = model.prefill(kPrompt, states_only);
  check(!states.logits.defined() && at::equal(states.final_hidden, whole.final_hidden),
        "hidden states do not need logits");
  const Tensor embeddings = model.internals()->embed(token_tensor(kPrompt));
  const ForwardInputs inputs{.embeddings = embeddings};
  const ForwardResult embedded = model.internals()->embeds_by_layer()
                                     ? model.prefill(kPrompt, {}, inputs)
                                     : model.prefill_from_embeddings(embeddings);
  check(at::equal(embedded.logits, whole.logits), "a token's embedding stands for it");
  const auto [own_keys, own_values] = model.internals()->key_values(0, 0);
  check(at::equal(own_keys, keys) && at::equal(own_values, values),
        "exported keys and values are those of the tokens");
}

/// A mask of one's own: all but the first two tokens see neither of them.
void hide_tokens(TransformerModel& model) {
  const auto size = std::ssize(kPrompt);
  Tensor mask = at::zeros({size, 2});
  mask.narrow(0, 2, size - 2).fill_(-std::numeric_limits<float>::infinity());
  const Tensor hidden = model.prefill(kPrompt, {}, {.attention_bias = mask}).logits;
  std::vector<Token> other = kPrompt;
  other[0] = 3;
  other[1] = 4;
  check(at::equal(hidden, model.prefill(other, {}, {.attention_bias = mask}).logits),
        "hidden tokens have no influence");
}

/// Generations from embeddings, from logits at hand, and with a bias.
void generate_from_parts(TransformerModel& model) {
  AutoregressiveDecoding plain(model);
  SpeculativeDecoding speculative(model, std::make_unique<PromptLookupDrafter>(),
                                  std::make_unique<RejectionVerifier>(),
                                  std::make_unique<FixedDraftLength>(4));
  const std::vector<Token> wanted = generate(plain, {});
  for (DecodingStrategy* strategy :
       {static_cast<DecodingStrategy*>(&plain), static_cast<DecodingStrategy*>(&speculative)}) {
    const Tensor embeddings = model.internals()->embed(token_tensor(kPrompt));
    check(generate(*strategy, {.embeddings = embeddings}) == wanted, "embeddings go on alike");
    const Tensor logits = model.prefill_get_last_logits(kPrompt);
    check(generate(*strategy, {.prompt_logits = logits}) == wanted, "so do logits at hand");
    const double never = -std::numeric_limits<double>::infinity();
    const Change biased{.bias = {{wanted.front(), never}, {5, 2.0}}};
    const std::vector<Token> output = generate(*strategy, biased);
    check(std::find(output.begin(), output.end(), wanted.front()) == output.end(),
          "a forbidden token does not come");
    check(output == generate(plain, biased), "speculation keeps the bias");
  }
}

/// A model of half of the layers equals an early exit of the whole.
void run_fewer_layers(const std::shared_ptr<const TransformerWeights>& weights,
                      TransformerModel& whole) {
  const int64_t count = (weights->config.num_layers + 1) / 2;
  TransformerModel half(weights, paged_kv(), {.active_layers = count});
  ForwardOptions early{.layers = std::vector<int64_t>(static_cast<size_t>(count))};
  std::iota(early.layers.begin(), early.layers.end(), 0);
  const TokenBatch batch{.tokens = token_tensor(kPrompt)};
  whole.truncate(0);
  check(at::equal(half.forward(batch).logits, whole.forward(batch, early).logits),
        "active layers are the first ones");
}

void run(const char* folder) {
  const c10::InferenceMode guard;
  const auto weights = load_model(folder);
  TransformerModel model(weights, paged_kv());
  read_in_parts(model);
  hide_tokens(model);
  generate_from_parts(model);
  run_fewer_layers(weights, model);
  std::cout << "all parts fit the whole\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: forward_parts MODEL\n";
    return 2;
  }
  try {
    run(argv[1]);
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
  return 0;
}
