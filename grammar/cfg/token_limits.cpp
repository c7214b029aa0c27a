#include "grammar/cfg/token_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/interruption.h"

namespace specdec {
namespace {

constexpr size_t kMaxSeen = 100'000;
constexpr size_t kMaxShown = 30;  ///< characters

/// How a state of the language's automaton was reached first.
struct Reached {
  RegexId from = RegexStore::kNothing;
  char32_t point = 0;
};
using ReachedFrom = std::unordered_map<RegexId, Reached>;

/// A character of the range, and whether it is fit to be shown.
std::pair<char32_t, bool> point_of(char32_t first, char32_t last) {
  for (const char32_t wanted : {U'a', U'A', U'0', U'!', U'\u00e9'}) {
    if (first <= wanted && wanted <= last) {
      return {wanted, true};
    }
  }
  return {first, false};
}

std::string text_to(const ReachedFrom& steps, RegexId start, RegexId state) {
  std::vector<std::string> points;
  for (bool more = true; more; more = state != start) {
    const Reached& step = steps.at(state);
    points.push_back(step.point >= 0x20
                         ? to_utf8(std::u32string(1, step.point))
                         : fmt::format("\\x{:02x}", static_cast<uint32_t>(step.point)));
    state = step.from;
  }
  std::reverse(points.begin(), points.end());
  std::string text;
  for (size_t i = 0; i < std::min(points.size(), kMaxShown); ++i) {
    text += points[i];
  }
  return text + (points.size() > kMaxShown ? "..." : "");
}

/// Walks the automaton of a language from its start on, breadth first.
class StateSearch {
 public:
  StateSearch(RegexStore& regexes, RegexId start) : regexes_(regexes), open_{start} {}

  size_t seen() const { return steps_.size(); }
  const ReachedFrom& steps() const { return steps_; }

  /// A state of the next ones that matches no text that ends there, if there is one.
  std::optional<RegexId> next() {
    const RegexId state = open_.front();
    open_.pop_front();
    const std::vector<RegexStore::Transition> transitions = regexes_.transitions(state);
    std::optional<RegexId> unfinished;
    for (const bool shown : {true, false}) {  // by legible characters first
      char32_t first = 0;
      for (const RegexStore::Transition& transition : transitions) {
        const auto [point, is_legible] = point_of(first, transition.last);
        first = transition.last + 1;
        const RegexId target = transition.target;
        if (is_legible == shown && target != RegexStore::kNothing &&
            steps_.emplace(target, Reached{state, point}).second) {
          open_.push_back(target);
          unfinished = unfinished || regexes_.matches_empty(target) ? unfinished : target;
        }
      }
    }
    return unfinished;
  }
  bool at_end() const { return open_.empty(); }

 private:
  RegexStore& regexes_;
  std::deque<RegexId> open_;
  ReachedFrom steps_;
};

}  // namespace

void check_token_limit(RegexStore& regexes, RegexId regex, const GrammarText& text,
                       size_t position) {
  StateSearch search(regexes, regex);
  while (!search.at_end()) {
    Interruption::check();
    if (const auto unfinished = search.next()) {
      text.fail(position,
                fmt::format("max_tokens may end the text anywhere, but '{}' begins a text of the "
                            "terminal and is none; bound what may end anywhere, such as /.*/ or "
                            "/[^\"]+/, and write what must follow behind it in a rule",
                            text_to(search.steps(), regex, *unfinished)));
    }
    if (search.seen() > kMaxSeen) {
      text.fail(position, fmt::format("the terminal with max_tokens has more than {} states; use "
                                      "smaller counts, or '*'",
                                      kMaxSeen));
    }
  }
}

}  // namespace specdec
