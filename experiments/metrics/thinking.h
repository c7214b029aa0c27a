#pragma once
#include <cstdint>
#include <optional>

#include "core/tokenizers/control_pieces.h"
#include "core/types.h"

namespace specdec {

/// New tokens [begin, end) with which a model thinks before it answers, those that open and end it
/// included.
struct ThinkingSpan {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const ThinkingSpan&) const = default;
};

/// The first thinking of an output; none where the model does not think. It begins at once where
/// the prompt has opened it and not ended it (chat templates do), and lasts to the output's end
/// where nothing ends it.
std::optional<ThinkingSpan> thinking_span(TokenSpan prompt, TokenSpan output,
                                          const ThinkingTokens& tokens);

}  // namespace specdec
