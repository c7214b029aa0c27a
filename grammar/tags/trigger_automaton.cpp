#include "grammar/tags/trigger_automaton.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/formats/utf8.h"
#include "grammar/regex/utf8_decoder.h"
#include "grammar/tables/growing_trie.h"
#include "grammar/tables/sequence_table.h"

namespace specdec {
namespace {

/// Finds the tags in a text as it comes in (Aho and Corasick 1975).
class TagSearch {
 public:
  static constexpr uint32_t kNoTag = ~0U;

  explicit TagSearch(const std::vector<std::string>& tags) {
    for (uint32_t tag = 0; tag < tags.size(); ++tag) {
      add(tags[tag], tag);
    }
    link();
  }

  uint32_t next(uint32_t node, uint8_t byte) const {
    for (;; node = nodes_[node].fail) {
      const uint32_t longer = texts_.child(node, byte);
      if (longer != GrowingTrie::kNone) {
        return longer;
      }
      if (node == GrowingTrie::kRoot) {
        return GrowingTrie::kRoot;
      }
    }
  }
  /// The longest tag that ends here.
  uint32_t tag(uint32_t node) const { return nodes_[node].tag; }
  /// How many bytes of a tag stand here.
  size_t depth(uint32_t node) const { return texts_.length(node); }

 private:
  struct Node {
    uint32_t fail = GrowingTrie::kRoot;  ///< the longest proper ending that is in the tree
    uint32_t tag = kNoTag;
  };

  void add(const std::string& text, uint32_t tag) {
    uint32_t node = GrowingTrie::kRoot;
    for (const char c : text) {
      node = texts_.add(node, static_cast<uint8_t>(c));
    }
    nodes_.resize(texts_.size());
    nodes_[node].tag = tag;
  }

  void link() {
    std::vector<uint32_t> order;  // shorter texts first
    for (uint32_t node = 1; node < texts_.size(); ++node) {
      order.push_back(node);
    }
    std::ranges::stable_sort(order, {}, [&](uint32_t node) { return texts_.length(node); });
    for (const uint32_t node : order) {
      const uint32_t parent = texts_.parent(node);
      if (parent != GrowingTrie::kRoot) {
        nodes_[node].fail = next(nodes_[parent].fail, static_cast<uint8_t>(texts_.symbol(node)));
      }
      if (nodes_[node].tag == kNoTag) {
        nodes_[node].tag = nodes_[nodes_[node].fail].tag;
      }
    }
  }

  GrowingTrie texts_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
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
    start_ = free(0, {});
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
      const StateId target = next_free(states_[state][1], unpack(states_[state][2]), byte);
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
      return unpack(words[2]).idle();
    }
    const TriggerRule& rule = rules_[words[1]];
    return rule.end.empty() && is_inner_complete(rule, words[2]);
  }

  void begin_call() override {
    for (const TriggerRule& rule : rules_) {
      rule.grammar->begin_call();
    }
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

  static uint32_t pack(const Utf8Decoder& utf8) {
    return utf8.value << 8 | utf8.more << 4 | utf8.size;
  }
  static Utf8Decoder unpack(uint32_t word) { return {word >> 8, word >> 4 & 0xF, word & 0xF}; }

  StateId free(uint32_t node, const Utf8Decoder& utf8) {
    const uint32_t packed = pack(utf8.shape());
    const auto [row, is_new] =
        row_of_.emplace(std::pair(node, packed), static_cast<uint32_t>(rows_.size()));
    if (is_new) {
      rows_.emplace_back().fill(kUnknown);
    }
    const uint32_t words[] = {kFree, node, packed, row->second};
    return states_.intern(words);
  }

  StateId next_free(uint32_t node, Utf8Decoder utf8, uint8_t byte) {
    std::optional<char32_t> point;
    if (!utf8.take(byte, point)) {
      return kDead;
    }
    const uint32_t there = tags_.next(node, byte);
    const uint32_t tag = tags_.tag(there);
    return tag == TagSearch::kNoTag ? free(there, utf8)
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
      return after == kDead && complete ? next_free(0, {}, byte) : inside(words[1], after, {});
    }
    std::vector<uint32_t> ends;
    const auto match = [&](uint32_t matched) {
      if (static_cast<uint8_t>(rule.end[matched]) == byte) {
        ends.push_back(matched + 1);
      }
    };
    if (complete) {
      match(0);
    }
    std::for_each(words.begin() + 3, words.end(), match);  // ascending, as they were
    const bool ended = !ends.empty() && ends.back() == rule.end.size();
    return ended ? free(0, {}) : inside(words[1], after, ends);
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
        unpack(states_[state][2]).idle() ? "any text, or its end\n" : "the rest of a character\n";
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
    for (const uint32_t matched : words.subspan(3)) {
      lines += fmt::format("the rest of the end tag: '{}'\n", rule.end.substr(matched));
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
