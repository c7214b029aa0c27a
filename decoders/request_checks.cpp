#include "decoders/request_checks.h"

#include <algorithm>

#include "core/error.h"
#include "grammar/compiled_grammar.h"

namespace specdec {

void check_stop_rule(const Request& request) {
  const StopRule& stop = request.stop;
  if (stop.max_new_tokens < 1) {
    throw ConfigError(
        fmt::format("max_new_tokens is {}; it must be at least 1", stop.max_new_tokens));
  }
  if (!stop.stop_strings.empty() && request.tokenizer == nullptr) {
    throw ConfigError("stop_strings need a tokenizer, and this model comes without one");
  }
  if (std::find(stop.stop_strings.begin(), stop.stop_strings.end(), "") !=
      stop.stop_strings.end()) {
    throw ConfigError("stop_strings holds an empty string, which every output contains");
  }
}

void check_vocabulary(const Constraint& constraint, int64_t vocab_size) {
  if (constraint.grammar != nullptr && constraint.grammar->vocab_size() > vocab_size) {
    throw ConfigError(
        fmt::format("the grammar was compiled for a vocabulary of {} tokens, and the model has "
                    "{}: compile it with the model's own tokenizer",
                    constraint.grammar->vocab_size(), vocab_size));
  }
}

void check_logit_bias(const SamplingParams& sampling, int64_t vocab_size) {
  if (!sampling.logit_bias.empty()) {
    const Token last = sampling.logit_bias.rbegin()->first;
    require_config(last < vocab_size,
                   fmt::format("sampling.logit_bias names token {}, but the model's vocabulary has "
                               "{} (0 to {})",
                               last, vocab_size, vocab_size - 1));
  }
}

static void check_embeddings(const Request& request, const LanguageModel& target) {
  const Internals* internals = target.internals();
  require_config(
      internals != nullptr,
      "the request gives embeddings, but this target reads tokens alone: leave them out, "
      "or decode with the model itself");
  const at::Tensor& embeddings = request.embeddings;
  require_config(
      embeddings.dim() == 2 && embeddings.is_floating_point() &&
          embeddings.size(0) == std::ssize(request.prompt) &&
          embeddings.size(1) == internals->hidden_size(),
      fmt::format("the request's embeddings should be numbers [{}, {}]: one row for each "
                  "of the prompt's tokens, as wide as the target's hidden size",
                  request.prompt.size(), internals->hidden_size()));
}

static void check_prompt_logits(const Request& request, const LanguageModel& target) {
  require_config(!request.embeddings.defined() && request.resumed.empty(),
                 "prompt_logits say that the prompt is read already: give neither embeddings of it "
                 "nor an output to go on with");
  require_config(
      !request.prompt.empty() && target.length() == std::ssize(request.prompt) &&
          target.pending() == 0,
      fmt::format(
          "prompt_logits belong to a prompt of {} tokens that the target keeps, but it keeps "
          "{} ({} more are pending): prefill it with the whole prompt, and no more",
          request.prompt.size(), target.length(), target.pending()));
  const at::Tensor& logits = request.prompt_logits;
  require_config(
      logits.dim() == 1 && logits.size(0) == target.vocab_size() &&
          (logits.scalar_type() == at::kFloat || logits.scalar_type() == at::kDouble),
      fmt::format(
          "prompt_logits should be [{}] float32 or float64: those of the prompt's last token",
          target.vocab_size()));
}

void check_prompt(const Request& request, const LanguageModel& target) {
  require_config(
      !request.library_products || (request.resumed.empty() && request.prefixes == nullptr &&
                                    !request.prompt_logits.defined()),
      "library_products read a prompt from its beginning: leave out resumed, prefixes and "
      "prompt_logits, or library_products");
  if (request.embeddings.defined()) {
    check_embeddings(request, target);
  }
  if (request.prompt_logits.defined()) {
    check_prompt_logits(request, target);
  }
}

void check_reads_whole(const Request& request) {
  require_config(request.resumed.empty(),
                 "this strategy draws whole outputs and cannot go on with one: resume with "
                 "autoregressive or speculative, or start again");
  require_config(
      !request.prompt_logits.defined(),
      "this strategy reads the prompt itself, perhaps several times: leave prompt_logits "
      "out, or decode with autoregressive or speculative");
}

}  // namespace specdec
