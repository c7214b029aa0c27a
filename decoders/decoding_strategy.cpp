#include "decoders/decoding_strategy.h"

#include <algorithm>

namespace specdec {

std::optional<StopReason> StopRule::reason(Token token) const {
  const auto is_in = [&](const std::vector<Token>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (is_in(end_ids)) {
    return StopReason::kEndOfSequence;
  }
  return is_in(stop_ids) ? std::optional(StopReason::kStopId) : std::nullopt;
}

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfSequence:
      return "end_of_sequence";
    case StopReason::kStopId:
      return "stop_id";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kGrammarEnd:
      return "grammar_end";
    case StopReason::kMaxNewTokens:
      return "max_new_tokens";
    case StopReason::kContextFull:
      return "context_full";
    case StopReason::kGrammarLimit:
      return "grammar_limit";
    case StopReason::kNoneAccepted:
      return "none_accepted";
  }
  return "unknown";
}

std::optional<DraftTrace> DecodingStrategy::trace(const Request& /*request*/, TokenSpan /*output*/,
                                                  const TraceOptions& /*options*/) {
  return std::nullopt;
}

bool ends_text(StopReason reason) {
  return reason == StopReason::kEndOfSequence || reason == StopReason::kGrammarEnd;
}

}  // namespace specdec
