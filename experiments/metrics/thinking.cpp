#include "experiments/metrics/thinking.h"

#include <algorithm>
#include <array>

namespace specdec {

std::optional<ThinkingSpan> thinking_span(TokenSpan prompt, TokenSpan output,
                                          const ThinkingTokens& tokens) {
  const std::array<Token, 2> marks = {tokens.begin, tokens.end};
  const auto last = std::find_first_of(prompt.rbegin(), prompt.rend(), marks.begin(), marks.end());
  const bool opened = last != prompt.rend() && *last == tokens.begin;
  const auto begin =
      opened ? output.begin() : std::find(output.begin(), output.end(), tokens.begin);
  if (begin == output.end()) {
    return std::nullopt;
  }
  const auto end = std::find(begin, output.end(), tokens.end);
  return ThinkingSpan{begin - output.begin(), end - output.begin() + (end == output.end() ? 0 : 1)};
}

}  // namespace specdec
