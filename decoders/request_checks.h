#pragma once
#include <cstdint>

#include "core/language_model.h"
#include "decoders/decoding_strategy.h"

namespace specdec {

/// Throws ConfigError for a stop rule out of range, and for stop strings without a tokenizer.
void check_stop_rule(const Request& request);

/// Throws ConfigError for a grammar compiled for more tokens than the model's vocabulary has: its
/// masks would reach beyond the logits. A model may have more tokens than the grammar, which
/// forbids those.
void check_vocabulary(const Constraint& constraint, int64_t vocab_size);

/// Throws ConfigError for a bias of tokens that the model does not have.
void check_logit_bias(const SamplingParams& sampling, int64_t vocab_size);

/// Throws ConfigError for embeddings and logits of the prompt that do not fit the target and what
/// its row 0 keeps, or one another.
void check_prompt(const Request& request, const LanguageModel& target);

/// Throws ConfigError for a request that goes on with its output so far, and for one whose prompt
/// is read already.
void check_reads_whole(const Request& request);

}  // namespace specdec
