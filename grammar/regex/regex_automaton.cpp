#include "grammar/regex/regex_automaton.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "core/error.h"
#include "grammar/interruption.h"

namespace specdec {
namespace {

using Kind = RegexNodes::Kind;

constexpr int kMaxExpressionDepth = 2000;   ///< of expressions in one another: bounds the stack
constexpr uint64_t kStorageForAState = 64;  ///< transitions and operands, on average
constexpr uint64_t kWorkForAState = 64;     ///< segments and targets put together, on average
constexpr uint64_t kDear = 4;               ///< such work is not done twice
constexpr size_t kMaxDerived = 1 << 18;     ///< transitions remembered
constexpr size_t kBlock = 1 << 13;          ///< targets that are stored together

}  // namespace

RegexAutomaton::RegexAutomaton(RegexNodes& nodes, std::mutex& mutex, uint64_t max_states)
    : nodes_(nodes), mutex_(mutex), max_states_(max_states), budget_{.states = max_states} {}

void RegexAutomaton::allow(uint64_t states) {
  const std::lock_guard lock(mutex_);
  const uint64_t left = max_states_ - std::min(max_states_, this->states());
  budget_ = {std::min(states, left / 4), this->states(), stored(), work_};
}

RegexId RegexAutomaton::next(RegexId state, char32_t c) {
  const Table& found = table(state);
  if (c > CodePoints::kLast) {
    return RegexStore::kNothing;
  }
  const RegexId target = found.targets[partitions_.range_of(found.partition, c)];
  return is_live(target) ? target : RegexStore::kNothing;
}

bool RegexAutomaton::goes_on(RegexId state, const CodePoints::Range& points) {
  const Table& found = table(state);
  const size_t last = partitions_.range_of(found.partition, points.last);
  for (size_t i = partitions_.range_of(found.partition, points.first); i <= last; ++i) {
    if (is_live(found.targets[i])) {
      return true;
    }
  }
  return false;
}

std::vector<RegexAutomaton::Transition> RegexAutomaton::transitions(RegexId state) {
  const Table& found = table(state);
  const std::span<const uint32_t> lasts = partitions_.lasts(found.partition);
  Map answer;
  for (size_t i = 0; i < lasts.size(); ++i) {
    append(lasts[i], is_live(found.targets[i]) ? found.targets[i] : RegexStore::kNothing, answer);
  }
  return answer;
}

uint64_t RegexAutomaton::bytes() const {
  constexpr uint64_t kPlace = sizeof(Map) + 64;  // in a map
  const std::lock_guard lock(mutex_);
  return states_.bytes() + tables_.bytes() + block_bytes_ + partitions_.bytes() +
         derived_transitions_ * sizeof(Transition) + derived_.size() * kPlace;
}

const RegexAutomaton::Table* RegexAutomaton::find_table(RegexId state) const {
  const State* known = states_.find(state);
  const uint32_t table = known == nullptr ? 0 : known->table.load(std::memory_order_acquire);
  return table == 0 ? nullptr : &tables_[table];
}

const RegexAutomaton::Table& RegexAutomaton::table(RegexId state) {
  const Table* known = find_table(state);
  if (known != nullptr) {
    return *known;
  }
  const std::lock_guard lock(mutex_);
  known = find_table(state);  // another thread may have built it in the meantime
  return known != nullptr ? *known : build(state);
}

const RegexAutomaton::Table& RegexAutomaton::build(RegexId state) {
  check_budget(state);
  depth_ = 0;
  const Map map = derive_anew(state);
  const auto number = static_cast<uint32_t>(states() + 1);
  Table& built = tables_.make(number);
  built = {partition_of(map), keep_targets(map)};
  states_.make(state).table.store(number, std::memory_order_release);
  built_.store(number, std::memory_order_relaxed);
  return built;
}

const RegexId* RegexAutomaton::keep_targets(const Map& map) {
  if (map.size() > block_left_) {
    block_left_ = std::max(kBlock, map.size());
    block_bytes_ += block_left_ * sizeof(RegexId);
    target_blocks_.push_back(std::make_unique<RegexId[]>(block_left_));
    next_target_ = target_blocks_.back().get();
  }
  RegexId* const kept = next_target_;
  next_target_ = std::ranges::transform(map, kept, &Transition::target).out;
  block_left_ -= map.size();
  stored_targets_ += map.size();
  return kept;
}

void RegexAutomaton::check_budget(RegexId state) const {
  const uint64_t storage = (stored() - budget_.stored) / kStorageForAState;
  const bool too_large =
      states() - budget_.built >= budget_.states || storage > budget_.states + 1000;
  if (state > RegexNodes::kAnyPoint && too_large) {
    fail_too_large();
  }
}

void RegexAutomaton::check_length(RegexId state) const {
  const uint64_t least = nodes_[state].shortest;
  const std::lock_guard lock(mutex_);
  if (least != RegexNodes::kInfinite && least > budget_.states) {
    throw GrammarError(fmt::format(
        "texts of {} characters or more take an automaton of more than {} states; use smaller "
        "counts, or raise max_regex_states",
        least, budget_.states));
  }
}

void RegexAutomaton::spend(uint64_t work) {
  Interruption::check();
  work_ += work;
  if ((work_ - budget_.work) / kWorkForAState > budget_.states + 1000) {
    fail_too_large();
  }
}

void RegexAutomaton::fail_too_large() const {
  throw GrammarError(
      fmt::format("the regular expressions need an automaton of more than {} states, or of fewer "
                  "large ones; use smaller counts or fewer alternatives, or raise max_regex_states",
                  budget_.states));
}

uint32_t RegexAutomaton::partition_of(const Map& map) {
  std::vector<uint32_t> lasts;
  lasts.reserve(map.size());
  for (const Transition& transition : map) {
    lasts.push_back(transition.last);
  }
  return partitions_.intern(lasts);
}

RegexAutomaton::Map RegexAutomaton::derive(RegexId regex) {
  if (const Table* known = find_table(regex)) {
    return map_of(*known);
  }
  if (const auto known = derived_.find(regex); known != derived_.end()) {
    return known->second;
  }
  const uint64_t before = work_;
  Map map = derive_anew(regex);
  if (work_ - before > kDear) {
    remember(regex, map);
  }
  return map;
}

/// Parts come again in other states, and many times over where parts share their own.
void RegexAutomaton::remember(RegexId regex, const Map& map) {
  if (derived_transitions_ + map.size() > kMaxDerived) {
    derived_.clear();
    derived_transitions_ = 0;
  }
  derived_transitions_ += map.size();
  derived_.emplace(regex, map);
}

RegexAutomaton::Map RegexAutomaton::map_of(const Table& table) const {
  const std::span<const uint32_t> lasts = partitions_.lasts(table.partition);
  Map map;
  map.reserve(lasts.size());
  for (size_t i = 0; i < lasts.size(); ++i) {
    map.push_back({lasts[i], table.targets[i]});
  }
  return map;
}

RegexAutomaton::Map RegexAutomaton::derive_anew(RegexId regex) {
  if (++depth_ > kMaxExpressionDepth) {
    throw GrammarError(
        fmt::format("a regular expression is nested more than {} deep; use fewer nested groups",
                    kMaxExpressionDepth));
  }
  spend(1);
  Map map;
  switch (nodes_[regex].kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      map = {{CodePoints::kLast, RegexStore::kNothing}};
      break;
    case Kind::kClass:
      map = derive_class(regex);
      break;
    case Kind::kConcat:
      map = derive_concat(regex);
      break;
    case Kind::kOr:
    case Kind::kAnd:
      map = derive_operands(regex);
      break;
    case Kind::kNot:
      map = derive_complement(regex);
      break;
    case Kind::kRepeat:
      map = derive_repeat(regex);
      break;
  }
  --depth_;
  return map;
}

RegexAutomaton::Map RegexAutomaton::derive_class(RegexId regex) const {
  Map map;
  char32_t begin = 0;
  for (const CodePoints::Range& range : nodes_.points(regex).ranges()) {
    if (range.first > begin) {
      map.push_back({range.first - 1, RegexStore::kNothing});
    }
    map.push_back({range.last, RegexStore::kEmpty});
    begin = range.last + 1;
  }
  if (begin <= CodePoints::kLast) {
    map.push_back({CodePoints::kLast, RegexStore::kNothing});
  }
  return map;
}

/// d(a b) = d(a) b, and d(b) too when a is nullable.
RegexAutomaton::Map RegexAutomaton::derive_concat(RegexId regex) {
  std::vector<Segment> segments;
  for (bool more = true; more;) {
    if (nodes_[regex].kind != Kind::kConcat) {
      append_followed_by(derive(regex), RegexStore::kEmpty, segments);
      break;
    }
    const RegexId head = nodes_[regex].a;
    const RegexId tail = nodes_[regex].b;
    append_followed_by(derive(head), tail, segments);
    more = nodes_[head].nullable;
    regex = tail;
  }
  return combine(segments, 1);
}

/// d(r{n,m}) = d(r) r{n-1,m-1}. A nullable r has n = 0 (see RegexNodes::repeat), so that no factor
/// before the one that takes the code point needs to be left out.
RegexAutomaton::Map RegexAutomaton::derive_repeat(RegexId regex) {
  const RegexNodes::Node node = nodes_[regex];
  const uint64_t max = node.max == RegexNodes::kInfinite ? node.max : node.max - 1;
  const RegexId rest = nodes_.repeat(node.a, node.min == 0 ? 0 : node.min - 1, max);
  std::vector<Segment> segments;
  append_followed_by(derive(node.a), rest, segments);
  return combine(segments, 1);
}

RegexAutomaton::Map RegexAutomaton::derive_complement(RegexId regex) {
  const Map inner = derive(nodes_[regex].a);
  const Map points = derive(RegexNodes::kAnyPoint);
  spend(inner.size());
  Map map;
  for (size_t i = 0, j = 0; i < inner.size() && j < points.size();) {
    const char32_t last = std::min(inner[i].last, points[j].last);
    const bool is_point = points[j].target == RegexStore::kEmpty;
    append(last, is_point ? nodes_.complement(inner[i].target) : RegexStore::kNothing, map);
    i += inner[i].last == last ? 1 : 0;
    j += points[j].last == last ? 1 : 0;
  }
  return map;
}

RegexAutomaton::Map RegexAutomaton::derive_operands(RegexId regex) {
  const auto span = nodes_.operands(regex);
  const std::vector<RegexId> operands(span.begin(), span.end());
  const size_t needed = nodes_[regex].kind == Kind::kAnd ? operands.size() : 1;
  std::vector<Segment> segments;
  for (const RegexId operand : operands) {
    append_followed_by(derive(operand), RegexStore::kEmpty, segments);
  }
  return combine(segments, needed);
}

void RegexAutomaton::append_followed_by(const Map& map, RegexId tail, std::vector<Segment>& out) {
  char32_t begin = 0;
  RegexId before = RegexStore::kNothing;  // the latest target: often every second one is the same
  RegexId after = RegexStore::kNothing;
  for (const Transition& transition : map) {
    if (transition.target != RegexStore::kNothing) {
      if (transition.target != before) {
        before = transition.target;
        after = tail == RegexStore::kEmpty ? before : nodes_.concat(before, tail);
      }
      if (after != RegexStore::kNothing) {
        out.push_back({begin, transition.last, after});
      }
    }
    begin = transition.last + 1;
  }
}

void RegexAutomaton::append(char32_t last, RegexId target, Map& map) {
  if (!map.empty() && map.back().target == target) {
    map.pop_back();
  }
  map.push_back({last, target});
}

/// Where fewer than `needed` segments lie nothing follows; else their union when `needed` is 1, or
/// their intersection.
RegexAutomaton::Map RegexAutomaton::combine(const std::vector<Segment>& segments, size_t needed) {
  spend(segments.size());
  const bool overlap =
      std::ranges::adjacent_find(segments, [](const Segment& segment, const Segment& next) {
        return next.first <= segment.last;
      }) != segments.end();
  if (overlap || needed > 1) {
    return overlay(segments, needed);
  }
  Map map;
  char32_t begin = 0;
  for (const Segment& segment : segments) {
    if (segment.first > begin) {
      append(segment.first - 1, RegexStore::kNothing, map);
    }
    append(segment.last, segment.target, map);
    begin = segment.last + 1;
  }
  if (begin <= CodePoints::kLast) {
    append(CodePoints::kLast, RegexStore::kNothing, map);
  }
  return map;
}

/// Sweeps over the segments in any order.
RegexAutomaton::Map RegexAutomaton::overlay(const std::vector<Segment>& segments, size_t needed) {
  const auto event = [](char32_t point, size_t segment) { return uint64_t{point} << 32 | segment; };
  std::vector<uint64_t> starts;
  std::vector<uint64_t> ends;
  starts.reserve(segments.size());
  ends.reserve(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    starts.push_back(event(segments[i].first, i));
    ends.push_back(event(segments[i].last + 1, i));
  }
  std::sort(starts.begin(), starts.end());
  std::sort(ends.begin(), ends.end());
  const auto comes_at = [](const std::vector<uint64_t>& events, size_t next, size_t point) {
    return next < events.size() && events[next] >> 32 == point;
  };
  Map map;
  std::vector<RegexId> active;  // targets of the segments here, sorted; as often as they have some
  std::vector<RegexId> distinct;                     // the same, each once
  std::map<std::vector<RegexId>, RegexId> combined;  // few sets of targets, of many code points
  for (size_t s = 0, e = 0, begin = 0; begin <= CodePoints::kLast;) {
    for (; comes_at(ends, e, begin); ++e) {
      const RegexId target = segments[static_cast<uint32_t>(ends[e])].target;
      active.erase(std::lower_bound(active.begin(), active.end(), target));
    }
    for (; comes_at(starts, s, begin); ++s) {
      const RegexId target = segments[static_cast<uint32_t>(starts[s])].target;
      active.insert(std::upper_bound(active.begin(), active.end(), target), target);
    }
    size_t end = CodePoints::kLast + size_t{1};
    end = s < starts.size() ? std::min<size_t>(end, starts[s] >> 32) : end;
    end = e < ends.size() ? std::min<size_t>(end, ends[e] >> 32) : end;
    RegexId target = RegexStore::kNothing;
    if (active.size() >= needed) {
      distinct.clear();
      std::unique_copy(active.begin(), active.end(), std::back_inserter(distinct));
      spend(distinct.size());
      if (distinct.size() == 1) {
        target = distinct[0];
      } else if (const auto known = combined.find(distinct); known != combined.end()) {
        target = known->second;
      } else {
        target = combine_targets(distinct, needed);
        combined.emplace(distinct, target);
      }
    }
    append(static_cast<char32_t>(end - 1), target, map);
    begin = end;
  }
  return map;
}

RegexId RegexAutomaton::combine_targets(const std::vector<RegexId>& targets, size_t needed) {
  const Kind kind = needed == 1 ? Kind::kOr : Kind::kAnd;
  for (const RegexId target : targets) {
    spend(nodes_[target].kind == kind ? nodes_[target].b : 1);
  }
  return needed == 1 ? nodes_.any_of(targets) : nodes_.all_of(targets);
}

}  // namespace specdec
