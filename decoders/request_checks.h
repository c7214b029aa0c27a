#pragma once
#include <cstdint>

#include "decoders/decoding_strategy.h"

namespace specdec {

/// Throws ConfigError for a stop rule out of range, and for stop strings without a tokenizer.
void check_stop_rule(const Request& request);

/// Throws ConfigError for a grammar compiled for more tokens than the model's vocabulary has: its
/// masks would reach beyond the logits. A model may have more tokens than the grammar, which
/// forbids those.
void check_vocabulary(const Constraint& constraint, int64_t vocab_size);

/// Throws ConfigError for a request that goes on with its output so far.
void check_not_resumed(const Request& request);

}  // namespace specdec
