// What marked rules match of a text of a context-free grammar.
#include <deque>
#include <string>

#include "core/error.h"
#include "grammar/cfg/captures.h"
#include "grammar/cfg/earley_completion.h"

namespace specdec {

StateId EarleyAutomaton::step(StateId state, const TextPart& part) {
  if (part.named) {
    return next_token(state, *part.named);
  }
  for (size_t i = 0; i < part.bytes.size() && state != kDead; ++i) {
    state = next(state, static_cast<uint8_t>(part.bytes[i]));
  }
  return part.ends_token ? end_token(state) : state;
}

std::vector<Capture> EarleyAutomaton::captures(std::span<const TextPart> text) {
  if (grammar_->marks().captures.empty()) {
    return {};
  }
  std::vector<TextPart> parts(text.begin(), text.end());
  StateId state = start();
  for (const TextPart& part : parts) {
    state = step(state, part);
  }
  if (state == kDead) {
    return {};
  }
  const uint32_t given = ChartText(parts).boundaries() - 1;
  std::deque<std::string> ways;
  while (!is_complete(state)) {
    const Way found = way(state);
    if (found.bytes.empty() && !found.token) {
      throw GrammarError(
          "the captures of a text that may go on are found by its shortest continuation, and none "
          "is known here; ask when the text is complete");
    }
    ways.push_back(found.bytes);
    parts.push_back({ways.back(), found.bytes.empty() ? found.token : std::nullopt});
    state = step(state, parts.back());
  }
  return find_captures(regexes_, *grammar_, ChartText(parts), given);
}

}  // namespace specdec
