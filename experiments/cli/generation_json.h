#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/language_model.h"
#include "decoders/decoding_strategy.h"

namespace specdec {

/// What `generate --json` says of a generation: tokens, text, stop_reason, and hypotheses
/// of a beam search; its statistics are metrics_json. Without a tokenizer the text is null.
nlohmann::json generation_json(const Generation& generation, const Request& request);

/// The raw distribution's log-probability of each token of `output` after `prompt`, by one more
/// pass of the target, with those of as many `alternatives`, the most likely tokens.
nlohmann::json logprobs_json(LanguageModel& target, const std::vector<Token>& prompt,
                             const std::vector<Token>& output, int64_t alternatives);

}  // namespace specdec
