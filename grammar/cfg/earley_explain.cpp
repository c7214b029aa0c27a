#include <algorithm>

#include "core/error.h"
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

CodePoints EarleyAutomaton::next_points(RegexId rest) {
  std::vector<CodePoints::Range> ranges;
  char32_t first = 0;
  for (const RegexStore::Transition& transition : regexes_.transitions(rest)) {
    if (transition.target != RegexStore::kNothing) {
      ranges.push_back({first, transition.last});
    }
    first = transition.last + 1;
  }
  return CodePoints(std::move(ranges));
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
  std::vector<std::string> lines;
  if (words[0] == kComplete) {
    lines.emplace_back("the end of the text");
  }
  for (const Item& item : items(state)) {
    const ContextFreeGrammar::Terminal& terminal =
        grammar_->terminal(grammar_->slot(item.slot).symbol.index);
    const CodePoints points = next_points(item.rest);
    const std::string line = fmt::format("{}{}: {}", item.rest == terminal.regex ? "" : "rest of ",
                                         terminal.label, show_points(points));
    if (!points.empty() && std::find(lines.begin(), lines.end(), line) == lines.end()) {
      lines.push_back(line);
    }
    if (lines.size() > kMaxLines) {
      lines.back() = "...";
      break;
    }
  }
  std::string result;
  for (const std::string& line : lines) {
    result += line + "\n";
  }
  return result;
}

}  // namespace specdec
