#include "experiments/metrics/copied_share.h"

#include <algorithm>
#include <array>
#include <set>

namespace specdec {

double copied_share(TokenSpan prompt, TokenSpan output) {
  constexpr auto kSize = static_cast<size_t>(kShortestCopy);
  using Stretch = std::array<Token, kSize>;
  const auto stretch_at = [](TokenSpan tokens, size_t begin) {
    Stretch stretch;
    std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(begin), kSize, stretch.begin());
    return stretch;
  };
  std::set<Stretch> known;
  for (size_t i = 0; i + kSize <= prompt.size(); ++i) {
    known.insert(stretch_at(prompt, i));
  }
  size_t copied = 0;
  size_t counted = 0;  // tokens before this one are in `copied` if they were copied
  for (size_t i = 0; i + kSize <= output.size(); ++i) {
    if (known.contains(stretch_at(output, i))) {
      copied += i + kSize - std::max(counted, i);
      counted = i + kSize;
    }
  }
  return output.empty() ? 0.0 : static_cast<double>(copied) / static_cast<double>(output.size());
}

}  // namespace specdec
