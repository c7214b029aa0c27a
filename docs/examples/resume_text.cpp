// Continues a text, keeps it in a file, and goes on from there: resume_text MODEL FILE
#include <c10/core/InferenceMode.h>

#include <iostream>

#include "core/error.h"
#include "core/families/model.h"
#include "core/prefix_store.h"
#include "core/transformer/transformer_model.h"
#include "decoders/autoregressive.h"
#include "decoders/generation_state.h"
#include "kv/paged_kv.h"

using namespace specdec;

namespace {

/// Goes on with a generation by `count` tokens.
void go_on(GenerationState& state, LanguageModel& model, int64_t count) {
  PrefixStore prefixes(int64_t{1} << 30);
  if (state.cached.snapshot != nullptr) {
    check_target(state, model);
    prefixes.insert(std::move(state.cached));
  }
  const std::vector<Token> resumed = state.output;
  CounterRandomness random = state.randomness();
  const Request request{.prompt = state.prompt,
                        .sampling = state.sampling,
                        .stop = {.max_new_tokens = std::ssize(resumed) + count},
                        .random = random,
                        .resumed = resumed,
                        .prefixes = &prefixes};
  const Generation generation = AutoregressiveDecoding(model).generate(request);
  state.output.insert(state.output.end(), generation.tokens.begin(), generation.tokens.end());
  keep_cache(state, model);
}

void resume(const char* folder, const char* file) {
  const c10::InferenceMode guard;
  const auto weights = load_model(folder);
  GenerationState state;
  state.model = folder;
  state.prompt = {2, 5, 7};
  state.sampling.temperature = 0.8;
  state.seed = 1;
  TransformerModel first(weights, paged_kv());
  go_on(state, first, 8);
  write_state(state, file);

  GenerationState read = read_state(file);
  TransformerModel second(weights, paged_kv());  // as in another process
  go_on(read, second, 8);
  go_on(state, first, 8);
  std::cout << (read.output == state.output ? "the same 16 tokens\n" : "other tokens\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: resume_text MODEL FILE\n";
    return 2;
  }
  try {
    resume(argv[1], argv[2]);
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
  return 0;
}
