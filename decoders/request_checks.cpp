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

void check_not_resumed(const Request& request) {
  require_config(request.resumed.empty(),
                 "this strategy draws whole outputs and cannot go on with one: resume with "
                 "autoregressive or speculative, or start again");
}

}  // namespace specdec
