#include "decoders/drafters/hidden_states.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace specdec {

const Internals& check_hidden_states(const LanguageModel& target, int64_t hidden_size,
                                     int64_t vocab_size) {
  const Internals* internals = target.internals();
  if (internals == nullptr) {
    throw ConfigError(
        "this head reads the target's hidden states, and this target does not even give its last "
        "hidden state: choose a drafter that only needs its tokens");
  }
  if (internals->hidden_size() != hidden_size || target.vocab_size() != vocab_size) {
    throw ConfigError(fmt::format(
        "the head was trained for another model, with hidden size {} and a vocabulary of {}; this "
        "target has {} and {}. Use a head that was trained for this target",
        hidden_size, vocab_size, internals->hidden_size(), target.vocab_size()));
  }
  return *internals;
}

Tensor last_hidden_state(const DraftContext& context) {
  if (context.last_step != nullptr) {
    return context.last_step->result.final_hidden.narrow(0, context.last_step->verified.path.back(),
                                                         1);
  }
  SPECDEC_CHECK(context.prompt_result != nullptr,
                "a head was not given the prompt's hidden states");
  const Tensor& hidden = context.prompt_result->final_hidden;
  return hidden.narrow(0, hidden.size(0) - 1, 1);
}

}  // namespace specdec
