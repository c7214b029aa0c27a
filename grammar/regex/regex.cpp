#include "grammar/regex/regex.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/error.h"
#include "grammar/regex/regex_automaton.h"
#include "grammar/regex/regex_nodes.h"
#include "grammar/regex/regex_queries.h"

namespace specdec {
namespace {

/// A trie from sorted texts, built from its leaves (Daciuk et al. 2000, algorithm 1): hash-consing
/// makes equal branches one, and the states of the automaton are the trie's nodes.
class Trie {
 public:
  explicit Trie(RegexNodes& nodes) : nodes_(nodes) {}

  void add(std::u32string_view text) {
    const auto [in_path, in_text] = std::ranges::mismatch(letters_, text);
    close(static_cast<size_t>(in_path - letters_.begin()));
    for (const char32_t letter : std::u32string_view(in_text, text.end())) {
      letters_.push_back(letter);
      begins_.push_back(branches_.size());
    }
    branches_.push_back(RegexStore::kEmpty);
  }

  RegexId finish() {
    close(0);
    return nodes_.any_of(std::move(branches_));
  }

 private:
  void close(size_t length) {
    for (; letters_.size() > length; letters_.pop_back(), begins_.pop_back()) {
      const auto begin = branches_.begin() + static_cast<int64_t>(begins_.back());
      const RegexId below = branches_.end() - begin == 1
                                ? branches_.back()
                                : nodes_.any_of(std::vector<RegexId>(begin, branches_.end()));
      branches_.erase(begin, branches_.end());
      branches_.push_back(nodes_.concat(nodes_.letter(letters_.back()), below));
    }
  }

  RegexNodes& nodes_;
  std::u32string letters_;
  std::vector<RegexId> branches_;  ///< of the nodes along `letters_`, from the root on
  std::vector<size_t> begins_;     ///< of each node's branches, the root's apart
};

std::vector<RegexId> copy(std::span<const RegexId> parts) { return {parts.begin(), parts.end()}; }

}  // namespace

class RegexStore::Implementation {
 public:
  explicit Implementation(uint64_t max_states)
      : automaton(nodes, mutex, max_states), queries(nodes, mutex, automaton) {}

  std::mutex mutex;  ///< of the nodes, what the automaton builds, and the names
  RegexNodes nodes;
  RegexAutomaton automaton;
  RegexQueries queries;
  std::map<std::string, RegexId> names;
};

RegexStore::RegexStore(uint64_t max_states)
    : implementation_(std::make_unique<Implementation>(max_states)) {}

RegexStore::~RegexStore() = default;

void RegexStore::allow(uint64_t states) { implementation_->automaton.allow(states); }

RegexId RegexStore::one_of(const CodePoints& points) {
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->nodes.one_of(points);
}

RegexId RegexStore::named(const std::string& name, const std::function<RegexId()>& make) {
  {
    const std::lock_guard lock(implementation_->mutex);
    const auto found = implementation_->names.find(name);
    if (found != implementation_->names.end()) {
      return found->second;
    }
  }
  const RegexId made = make();
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->names.try_emplace(name, made).first->second;
}

RegexId RegexStore::literal(std::u32string_view text) {
  const std::lock_guard lock(implementation_->mutex);
  RegexNodes& nodes = implementation_->nodes;
  RegexId whole = kEmpty;
  for (auto letter = text.rbegin(); letter != text.rend(); ++letter) {
    whole = nodes.concat(nodes.letter(*letter), whole);
  }
  return whole;
}

RegexId RegexStore::concat(std::span<const RegexId> parts) {
  RegexId whole = kEmpty;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    whole = concat(*part, whole);
  }
  return whole;
}

RegexId RegexStore::concat(RegexId first, RegexId second) {
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->nodes.concat(first, second);
}

RegexId RegexStore::any_of(std::span<const RegexId> parts) {
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->nodes.any_of(copy(parts));
}

RegexId RegexStore::any_of(RegexId first, RegexId second) {
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->nodes.any_of({first, second});
}

RegexId RegexStore::all_of(std::span<const RegexId> parts) {
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->nodes.all_of(copy(parts));
}

RegexId RegexStore::all_of(RegexId first, RegexId second) {
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->nodes.all_of({first, second});
}

RegexId RegexStore::complement(RegexId regex) {
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->nodes.complement(regex);
}

RegexId RegexStore::repeat(RegexId regex, uint64_t min, std::optional<uint64_t> max) {
  SPECDEC_CHECK(min < RegexNodes::kInfinite && min <= max.value_or(min), "repeat {} to {} times",
                min, max.value_or(min));
  const std::lock_guard lock(implementation_->mutex);
  return implementation_->nodes.repeat(regex, min, max.value_or(RegexNodes::kInfinite));
}

RegexId RegexStore::words(std::vector<std::u32string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const std::lock_guard lock(implementation_->mutex);
  Trie trie(implementation_->nodes);
  for (const std::u32string& text : texts) {
    trie.add(text);
  }
  return trie.finish();
}

bool RegexStore::matches_empty(RegexId regex) const {
  return implementation_->nodes[regex].nullable;
}

bool RegexStore::is_nothing(RegexId regex) { return !implementation_->automaton.is_live(regex); }

RegexId RegexStore::next(RegexId regex, char32_t c) {
  return implementation_->automaton.next(regex, c);
}

std::vector<RegexStore::Transition> RegexStore::transitions(RegexId regex) {
  return implementation_->automaton.transitions(regex);
}

bool RegexStore::goes_on(RegexId regex, std::span<const CodePoints::Range> ranges) {
  if (regex == kNothing || regex == kAll) {
    return regex == kAll && !ranges.empty();
  }
  return std::ranges::any_of(ranges, [&](const CodePoints::Range& range) {
    return implementation_->automaton.goes_on(regex, range);
  });
}

bool RegexStore::matches(RegexId regex, std::u32string_view text) {
  for (const char32_t c : text) {
    if (regex == kNothing || regex == kAll) {
      return regex == kAll;
    }
    regex = next(regex, c);
  }
  return matches_empty(regex);
}

bool RegexStore::are_apart(RegexId a, RegexId b, uint64_t& most) {
  return implementation_->queries.are_apart(a, b, most);
}

bool RegexStore::are_apart(RegexId a, RegexId b) {
  constexpr uint64_t kFew = 256;
  uint64_t most = kFew;
  return are_apart(a, b, most);
}

bool RegexStore::is_finite(RegexId regex) { return implementation_->queries.is_finite(regex); }

uint64_t RegexStore::count(RegexId regex, uint64_t cap) {
  return implementation_->queries.count(regex, cap);
}

std::vector<std::u32string> RegexStore::list(RegexId regex, uint64_t max) {
  return implementation_->queries.list(regex, max);
}

std::optional<std::u32string> RegexStore::shortest(RegexId regex) {
  return implementation_->queries.shortest(regex);
}

std::optional<CodePoints> RegexStore::star_of(RegexId regex) const {
  const RegexNodes& nodes = implementation_->nodes;
  const RegexNodes::Node& node = nodes[regex];
  if (regex == kEmpty) {
    return CodePoints();
  }
  const bool star = node.kind == RegexNodes::Kind::kRepeat && node.min == 0 &&
                    node.max == RegexNodes::kInfinite &&
                    nodes[node.a].kind == RegexNodes::Kind::kClass;
  return star ? std::optional(nodes.points(node.a)) : std::nullopt;
}

CodePoints RegexStore::loop_of(RegexId regex) {
  const RegexNodes& nodes = implementation_->nodes;
  const RegexNodes::Node node = nodes[regex];
  switch (node.kind) {
    case RegexNodes::Kind::kRepeat:
      return node.max == RegexNodes::kInfinite && nodes[node.a].kind == RegexNodes::Kind::kClass
                 ? nodes.points(node.a)
                 : CodePoints();
    case RegexNodes::Kind::kConcat: {
      const bool head_loops = nodes[node.a].kind == RegexNodes::Kind::kRepeat;
      return head_loops && !is_nothing(node.b) ? loop_of(node.a) : CodePoints();
    }
    case RegexNodes::Kind::kOr: {
      std::vector<RegexId> operands;
      {
        const std::lock_guard lock(implementation_->mutex);
        operands = copy(nodes.operands(regex));
      }
      CodePoints most;
      for (const RegexId operand : operands) {
        CodePoints points = loop_of(operand);
        most = points.size() > most.size() ? std::move(points) : most;
      }
      return most;
    }
    default:
      return {};
  }
}

WideHash::Value RegexStore::key(RegexId regex) const { return implementation_->nodes[regex].key; }

uint64_t RegexStore::states() const { return implementation_->automaton.states(); }

uint64_t RegexStore::bytes() const {
  const Implementation& all = *implementation_;
  const uint64_t others = all.automaton.bytes() + all.queries.bytes();
  const std::lock_guard lock(implementation_->mutex);
  return all.nodes.bytes() + others;
}

bool RegexStore::is_half_full() const { return implementation_->automaton.is_half_full(); }

}  // namespace specdec
