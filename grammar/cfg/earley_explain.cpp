// What may come next in a state of an EarleyAutomaton, in words.
#include <fmt/format.h>

#include <algorithm>

#include "grammar/cfg/earley_automaton.h"

namespace specdec {
namespace {

constexpr size_t kMaxRanges = 8;
constexpr size_t kMaxLines = 50;

std::string show_point(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c < 0xA0)) {
    return fmt::format("U+{:04X}", static_cast<uint32_t>(c));
  }
  return fmt::format("'{}'", to_utf8(std::u32string(1, c)));
}

/// How many more tokens may end within a terminal that bounds them; see Item::tokens.
std::string show_tokens(uint32_t max_tokens, uint32_t tokens) {
  const uint32_t more = max_tokens + 1 - std::max(tokens, 1U);
  return max_tokens == 0
             ? ""
             : fmt::format(" (at most {} more {})", more, more == 1 ? "token" : "tokens");
}

std::string show_points(const CodePoints& points) {
  std::string result;
  size_t shown = 0;
  for (const CodePoints::Range& range : points.ranges()) {
    if (++shown > kMaxRanges) {
      return result + ", ...";
    }
    result += (result.empty() ? "" : ", ") + show_point(range.first);
    if (range.last > range.first) {
      result += (range.last > range.first + 1 ? "-" : ", ") + show_point(range.last);
    }
  }
  return result;
}

}  // namespace

std::vector<std::string> EarleyAutomaton::lines(StateId state) {
  std::vector<std::string> lines;
  if (is_complete(state)) {
    lines.emplace_back("the end of the text");
  }
  for (const Item& item : items(plain(state))) {
    const ContextFreeGrammar::Terminal& at = terminal(item.slot);
    const CodePoints points = next_points(item.rest);
    const std::string line =
        fmt::format("{}{}{}: {}", item.rest == at.regex ? "" : "rest of ", at.label,
                    show_tokens(at.max_tokens, item.tokens), show_points(points));
    if (at.token) {
      lines.push_back("the token " + at.label);
    } else if (!points.empty() && std::find(lines.begin(), lines.end(), line) == lines.end()) {
      lines.push_back(line);
    }
  }
  for (const Embedded& item : embedded(state)) {
    const ContextFreeGrammar::Terminal& at = terminal(item.slot);
    std::string inner = at.automaton->explain(item.inner);
    if (inner.ends_with('\n')) {
      inner.pop_back();
    }
    lines.push_back(fmt::format("{}:\n{}", at.label, inner));
  }
  return lines;
}

std::string EarleyAutomaton::explain(StateId state) {
  if (state == kDead) {
    return "nothing: no text of the grammar goes on like this\n";
  }
  const auto words = states_[state];
  if (words[0] == kUniform || words[0] == kPartial) {
    const uint32_t more = words[0] == kUniform ? words[2] : words[3];
    const std::string rest =
        fmt::format("{} more {} of a character\n", more, more == 1 ? "byte" : "bytes");
    return words[0] == kUniform ? rest : rest + "of one of these:\n" + explain(words[1]);
  }
  if (tag(plain(state)) > kComplete) {
    return explain(plain(state)) + explain(intern(kDead, embedded(state)));
  }
  std::string result;
  size_t count = 0;
  for (const std::string& line : lines(state)) {
    if (++count > kMaxLines) {
      return result + "...\n";
    }
    result += line + "\n";
  }
  return result;
}

}  // namespace specdec
