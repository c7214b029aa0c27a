#include "grammar/tags/trigger_automaton.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/tables/sequence_table.h"

namespace specdec {
namespace {

/// Where UTF-8 stands between two bytes.
enum Utf8 : uint32_t {
  kIdle,
  kOneMore,
  kTwoMore,
  kThreeMore,
  kAfterE0,  ///< the second byte's range excludes overlong forms,
  kAfterEd,  ///< surrogates,
  kAfterF0,  ///< overlong forms,
  kAfterF4,  ///< and what is above U+10FFFF
};

std::optional<Utf8> utf8_lead(uint8_t byte) {
  if (byte < 0x80) {
    return kIdle;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    return std::nullopt;
  }
  switch (byte) {
    case 0xE0:
      return kAfterE0;
    case 0xED:
      return kAfterEd;
    case 0xF0:
      return kAfterF0;
    case 0xF4:
      return kAfterF4;
    default:
      return byte < 0xE0 ? kOneMore : byte < 0xF0 ? kTwoMore : kThreeMore;
  }
}

/// Nothing when no character goes on so.
std::optional<Utf8> utf8_next(Utf8 state, uint8_t byte) {
  struct Step {
    uint8_t first, last;
    Utf8 next;
  };
  constexpr std::array<Step, 8> kSteps = {{{0, 0, kIdle},
                                           {0x80, 0xBF, kIdle},
                                           {0x80, 0xBF, kOneMore},
                                           {0x80, 0xBF, kTwoMore},
                                           {0xA0, 0xBF, kOneMore},
                                           {0x80, 0x9F, kOneMore},
                                           {0x90, 0xBF, kTwoMore},
                                           {0x80, 0x8F, kTwoMore}}};
  if (state == kIdle) {
    return utf8_lead(byte);
  }
  const Step& step = kSteps[state];
  return byte >= step.first && byte <= step.last ? std::optional(step.next) : std::nullopt;
}

/// Finds the tags in a text as it comes in (Aho and Corasick 1975).
class TagSearch {
 public:
  static constexpr uint32_t kNoTag = ~0U;

  explicit TagSearch(const std::vector<std::string>& tags) : nodes_(1) {
    for (uint32_t tag = 0; tag < tags.size(); ++tag) {
      add(tags[tag], tag);
    }
    link();
  }

  uint32_t next(uint32_t node, uint8_t byte) const {
    for (;; node = nodes_[node].fail) {
      const auto found = nodes_[node].children.find(byte);
      if (found != nodes_[node].children.end()) {
        return found->second;
      }
      if (node == 0) {
        return 0;
      }
    }
  }
  /// The longest tag that ends here.
  uint32_t tag(uint32_t node) const { return nodes_[node].tag; }
  /// How many bytes of a tag stand here.
  size_t depth(uint32_t node) const { return nodes_[node].depth; }

 private:
  struct Node {
    std::map<uint8_t, uint32_t> children;
    uint32_t fail = 0;
    uint32_t tag = kNoTag;
    size_t depth = 0;
  };

  void add(const std::string& text, uint32_t tag) {
    uint32_t node = 0;
    for (const char c : text) {
      const auto [place, is_new] = nodes_[node].children.emplace(
          static_cast<uint8_t>(c), static_cast<uint32_t>(nodes_.size()));
      node = place->second;
      if (is_new) {
        nodes_.emplace_back();
      }
    }
    nodes_[node].tag = tag;
  }

  void link() {
    std::vector<uint32_t> order = {0};
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t node = order[i];
      for (const auto& [byte, child] : nodes_[node].children) {
        nodes_[child].fail = node == 0 ? 0 : next(nodes_[node].fail, byte);
        nodes_[child].depth = nodes_[node].depth + 1;
        if (nodes_[child].tag == kNoTag) {
          nodes_[child].tag = nodes_[nodes_[child].fail].tag;
        }
        order.push_back(child);
      }
    }
  }

  std::vector<Node> nodes_;
};

std::vector<std::string> begin_tags(const std::vector<TriggerRule>& rules) {
  std::vector<std::string> tags;
  tags.reserve(rules.size());
  for (const TriggerRule& rule : rules) {
    tags.push_back(rule.begin);
  }
  return tags;
}

class TriggerAutomaton final : public Automaton {
 public:
  explicit TriggerAutomaton(std::vector<TriggerRule> rules)
      : rules_(std::move(rules)), tags_(begin_tags(rules_)) {
    states_.intern({});  // kDead
    start_ = free(0, kIdle);
  }

  StateId start() override { return start_; }

  StateId next(StateId state, uint8_t byte) override {
    if (state == kDead) {
      return kDead;
    }
    if (states_[state][0] == kInside) {
      return next_inside(state, byte);
    }
    const uint32_t row = states_[state][3];
    if (rows_[row][byte] == kUnknown) {
      const StateId target =
          next_free(states_[state][1], static_cast<Utf8>(states_[state][2]), byte);
      rows_[row][byte] = target;
    }
    return rows_[row][byte];
  }

  bool is_complete(StateId state) override {
    if (state == kDead) {
      return false;
    }
    const auto words = states_[state];
    if (words[0] == kFree) {
      return words[2] == kIdle;
    }
    const TriggerRule& rule = rules_[words[1]];
    return rule.end.empty() && is_inner_complete(rule, words[2]);
  }

  double used() const override {
    double most = 0.0;
    for (const TriggerRule& rule : rules_) {
      most = std::max(most, rule.grammar->used());
    }
    return most;
  }

  std::optional<std::string> way_out(StateId state) override {
    return states_[state][0] == kFree ? way_out_of_character(state) : way_out_of_part(state);
  }

  std::string explain(StateId state) override {
    if (state == kDead) {
      return "nothing: no text goes on like this\n";
    }
    return states_[state][0] == kFree ? explain_free(state) : explain_inside(state);
  }

 private:
  /// Words: kFree, node of the tags, UTF-8, row of transitions. kInside, rule, state of its
  /// grammar, and how much of the end tag stands here, in each way that it can.
  enum Tag : uint32_t { kFree, kInside };
  static constexpr StateId kUnknown = ~StateId{0};

  static bool is_inner_complete(const TriggerRule& rule, StateId inner) {
    return inner != kDead && rule.grammar->is_complete(inner);
  }

  StateId free(uint32_t node, Utf8 utf8) {
    const auto key = std::pair(node, static_cast<uint32_t>(utf8));
    const auto [place, is_new] = row_of_.emplace(key, static_cast<uint32_t>(rows_.size()));
    if (is_new) {
      rows_.emplace_back().fill(kUnknown);
    }
    const uint32_t words[] = {kFree, node, utf8, place->second};
    return states_.intern(words);
  }

  StateId next_free(uint32_t node, Utf8 utf8, uint8_t byte) {
    const auto after = utf8_next(utf8, byte);
    if (!after) {
      return kDead;
    }
    const uint32_t there = tags_.next(node, byte);
    const uint32_t tag = tags_.tag(there);
    return tag == TagSearch::kNoTag ? free(there, *after)
                                    : inside(tag, rules_[tag].grammar->start(), {});
  }

  StateId inside(uint32_t rule, StateId inner, const std::vector<uint32_t>& ends) {
    if (inner == kDead && ends.empty()) {
      return kDead;
    }
    std::vector<uint32_t> words = {kInside, rule, inner};
    words.insert(words.end(), ends.begin(), ends.end());
    return states_.intern(words);
  }

  StateId next_inside(StateId state, uint8_t byte) {
    const auto found = states_[state];
    const std::vector<uint32_t> words(found.begin(), found.end());
    const TriggerRule& rule = rules_[words[1]];
    const StateId inner = words[2];
    const StateId after = inner == kDead ? kDead : rule.grammar->next(inner, byte);
    const bool complete = is_inner_complete(rule, inner);
    if (rule.end.empty()) {
      return after == kDead && complete ? next_free(0, kIdle, byte) : inside(words[1], after, {});
    }
    std::vector<uint32_t> ends;
    const auto match = [&](uint32_t place) {
      if (static_cast<uint8_t>(rule.end[place]) == byte) {
        ends.push_back(place + 1);
      }
    };
    if (complete) {
      match(0);
    }
    std::for_each(words.begin() + 3, words.end(), match);  // ascending, as they were
    const bool ended = !ends.empty() && ends.back() == rule.end.size();
    return ended ? free(0, kIdle) : inside(words[1], after, ends);
  }

  std::string way_out_of_character(StateId state) {
    std::string way;
    for (uint8_t byte = 0x80; states_[state][0] == kFree && !is_complete(state); ++byte) {
      if (const StateId there = next(state, byte); there != kDead) {
        way += static_cast<char>(byte);
        state = there;
        byte = 0x7F;
      }
    }
    return way;
  }

  std::optional<std::string> way_out_of_part(StateId state) {
    const auto words = states_[state];
    const TriggerRule& rule = rules_[words[1]];
    if (words.size() > 3) {
      return rule.end.substr(words.back());
    }
    const auto inner = rule.grammar->way_out(words[2]);
    StateId after = words[2];
    for (const char byte : inner.value_or("")) {
      after = rule.grammar->next(after, static_cast<uint8_t>(byte));
    }
    return inner && rule.grammar->is_complete(after) ? *inner + rule.end : inner;
  }

  std::string explain_free(StateId state) const {
    const uint32_t node = states_[state][1];
    std::string lines =
        states_[state][2] == kIdle ? "any text, or its end\n" : "the rest of a character\n";
    for (const TriggerRule& rule : rules_) {
      lines += fmt::format("after '{}': what its grammar says\n", rule.begin);
    }
    if (tags_.depth(node) > 0) {
      lines += fmt::format("{} bytes of a tag stand here\n", tags_.depth(node));
    }
    return lines;
  }

  std::string explain_inside(StateId state) const {
    const auto words = states_[state];
    const TriggerRule& rule = rules_[words[1]];
    std::string lines = fmt::format("after '{}':\n", rule.begin);
    lines += words[2] == kDead ? "" : rule.grammar->explain(words[2]);
    if (!rule.end.empty() && is_inner_complete(rule, words[2])) {
      lines += fmt::format("the end tag '{}'\n", rule.end);
    }
    for (const uint32_t place : words.subspan(3)) {
      lines += fmt::format("the rest of the end tag: '{}'\n", rule.end.substr(place));
    }
    return lines;
  }

  std::vector<TriggerRule> rules_;
  TagSearch tags_;
  SequenceTable states_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> row_of_;  ///< by node and UTF-8
  std::vector<std::array<StateId, 256>> rows_;                ///< transitions of free states
  StateId start_ = kDead;
};

void check(const std::vector<TriggerRule>& rules) {
  for (size_t i = 0; i < rules.size(); ++i) {
    const TriggerRule& rule = rules[i];
    if (rule.begin.empty() || !is_utf8(rule.begin) || !is_utf8(rule.end)) {
      throw GrammarError(
          fmt::format("trigger {}: the begin tag must not be empty, and both tags "
                      "must be UTF-8",
                      i + 1));
    }
    SPECDEC_CHECK(rule.grammar != nullptr, "trigger '{}' without a grammar", rule.begin);
    if (rule.grammar->start() == Automaton::kDead) {
      throw GrammarError(fmt::format("trigger '{}': its grammar has no text", rule.begin));
    }
    for (size_t j = 0; j < rules.size(); ++j) {
      const auto most = std::string_view(rule.begin).substr(0, rule.begin.size() - 1);
      if (i != j && (rule.begin == rules[j].begin || most.find(rules[j].begin) != most.npos)) {
        throw GrammarError(
            fmt::format("trigger '{}': the tag '{}' is found before it is whole; "
                        "remove one of them",
                        rule.begin, rules[j].begin));
      }
    }
  }
}

}  // namespace

std::unique_ptr<Automaton> make_trigger_automaton(std::vector<TriggerRule> rules) {
  check(rules);
  return std::make_unique<TriggerAutomaton>(std::move(rules));
}

}  // namespace specdec
