#pragma once
#include <cstdint>

#include "core/language_model.h"
#include "decoders/drafter.h"

namespace specdec {

/// The internals of a target whose hidden states a head reads that was made for this hidden size
/// and vocabulary. Throws ConfigError when the target does not give them, or has other sizes.
const Internals& check_hidden_states(const LanguageModel& target, int64_t hidden_size,
                                     int64_t vocab_size);

/// The target's last hidden state, after the final norm: of the newest token that it has evaluated,
/// [1, hidden]. The drafter's Needs must ask for internals.
Tensor last_hidden_state(const DraftContext& context);

}  // namespace specdec
