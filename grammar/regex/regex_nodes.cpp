#include "grammar/regex/regex_nodes.h"

#include <algorithm>

#include "core/error.h"
#include "grammar/tables/hash.h"

namespace specdec {
namespace {

using Kind = RegexNodes::Kind;

uint64_t saturating_add(uint64_t a, uint64_t b) {
  return a > RegexNodes::kInfinite - b ? RegexNodes::kInfinite : a + b;
}

uint64_t saturating_multiply(uint64_t a, uint64_t b) {
  return b != 0 && a > RegexNodes::kInfinite / b ? RegexNodes::kInfinite : a * b;
}

/// a + b or a * b, unless a finite count would become kInfinite.
std::optional<uint64_t> exact(uint64_t a, uint64_t b, uint64_t result) {
  const bool infinite = a == RegexNodes::kInfinite || b == RegexNodes::kInfinite;
  if (result == RegexNodes::kInfinite && !infinite) {
    return std::nullopt;
  }
  return result;
}

constexpr uint64_t kPlaceOfClass = 96;  ///< in the map

bool has_operands(Kind kind) { return kind == Kind::kOr || kind == Kind::kAnd; }

}  // namespace

bool RegexNodes::Node::same_expression(const Node& other) const {
  return kind == other.kind && a == other.a && b == other.b && min == other.min && max == other.max;
}

uint64_t RegexNodes::bytes() const {
  return nodes_.bytes() + operands_.capacity() * sizeof(RegexId) + classes_.bytes() + class_bytes_ +
         ids_.bytes();
}

uint64_t RegexNodes::hash(RegexId id) const {
  const Node& node = nodes_[id];
  WordHash hash;
  hash.add(static_cast<uint64_t>(node.kind));
  if (has_operands(node.kind)) {
    for (const RegexId operand : operands(id)) {
      hash.add(operand);
    }
    return hash.value();
  }
  hash.add(static_cast<uint64_t>(node.a) << 32 | node.b);
  return node.kind == Kind::kRepeat ? hash.add(node.min).add(node.max).value() : hash.value();
}

bool RegexNodes::same(RegexId a, RegexId b) const {
  const Node& left = nodes_[a];
  const Node& right = nodes_[b];
  if (left.kind != right.kind || !has_operands(left.kind)) {
    return left.same_expression(right);
  }
  return std::ranges::equal(operands(a), operands(b));
}

RegexNodes::RegexNodes() {
  add({.kind = Kind::kNothing, .shortest = kInfinite});
  add({.kind = Kind::kEmpty, .nullable = true});
  const RegexId any_point = RegexStore::kAll + 1;
  add({.kind = Kind::kRepeat,
       .nullable = true,
       .a = any_point,
       .max = kInfinite,
       .longest = kInfinite});
  one_of(CodePoints::all());
}

std::span<const RegexId> RegexNodes::operands(RegexId id) const {
  return std::span(operands_).subspan(nodes_[id].a, nodes_[id].b);
}

RegexId RegexNodes::add(Node node) {
  if (size_ >= std::numeric_limits<RegexId>::max() - 1) {
    throw GrammarError("regular expressions take more than 2^32 nodes; use fewer or smaller ones");
  }
  const RegexId id = size_;
  nodes_.make(id) = node;
  if (const RegexId* known = ids_.find(hash(id), [&](RegexId old) { return same(old, id); })) {
    return *known;
  }
  ids_.add(id, [&](RegexId old) { return hash(old); });
  nodes_[id].key = key_of(id);
  ++size_;
  return id;
}

/// Operands stand in the order in which they were made, which says nothing here.
WideHash::Value RegexNodes::key_of(RegexId id) const {
  const Node& node = nodes_[id];
  WideHash hash;
  hash.add(static_cast<uint64_t>(node.kind));
  if (node.kind == Kind::kClass) {
    for (const CodePoints::Range& range : points(id).ranges()) {
      hash.add(uint64_t{range.first} << 32 | range.last);
    }
    return hash.value();
  }
  if (has_operands(node.kind)) {
    WideHash::Value sum = {};
    for (const RegexId operand : operands(id)) {
      const WideHash::Value mixed = WideHash().add(nodes_[operand].key).value();
      sum = {sum[0] + mixed[0], sum[1] + mixed[1]};
    }
    return hash.add(sum).value();
  }
  for (const RegexId part : {node.a, node.b}) {
    hash.add(part < id ? nodes_[part].key : WideHash::Value());  // kAll is made before its part
  }
  return hash.add(node.min).add(node.max).value();
}

RegexId RegexNodes::add_operands(Kind kind, const std::vector<RegexId>& parts) {
  const bool is_or = kind == Kind::kOr;
  Node node = {.kind = kind,
               .nullable = !is_or,
               .extended = !is_or,
               .a = static_cast<uint32_t>(operands_.size()),
               .b = static_cast<uint32_t>(parts.size()),
               .shortest = is_or ? kInfinite : 0,
               .longest = is_or ? 0 : kInfinite};
  for (const RegexId part : parts) {
    const Node& operand = nodes_[part];
    node.nullable = is_or ? node.nullable || operand.nullable : node.nullable && operand.nullable;
    node.extended = node.extended || operand.extended;
    node.shortest = is_or ? std::min(node.shortest, operand.shortest)
                          : std::max(node.shortest, operand.shortest);
    node.longest =
        is_or ? std::max(node.longest, operand.longest) : std::min(node.longest, operand.longest);
  }
  if (node.shortest > node.longest) {
    return RegexStore::kNothing;
  }
  operands_.insert(operands_.end(), parts.begin(), parts.end());
  const RegexId before = size();
  const RegexId id = add(node);
  if (id != before) {
    operands_.resize(node.a);
  }
  return id;
}

RegexId RegexNodes::one_of(const CodePoints& points) {
  if (points.empty()) {
    return RegexStore::kNothing;
  }
  std::vector<std::pair<char32_t, char32_t>> key;
  for (const CodePoints::Range& range : points.ranges()) {
    key.emplace_back(range.first, range.last);
  }
  const auto [known, is_new] =
      class_ids_.emplace(std::move(key), static_cast<uint32_t>(class_ids_.size()));
  if (is_new) {
    class_bytes_ += points.ranges().size() * 2 * sizeof(CodePoints::Range) + kPlaceOfClass;
    classes_.make(known->second) = points;
  }
  return add({.kind = Kind::kClass, .a = known->second, .shortest = 1, .longest = 1});
}

RegexId RegexNodes::letter(char32_t point) {
  if (point >= letters_.size()) {
    return one_of(CodePoints({{point, point}}));
  }
  if (letters_[point] == RegexStore::kNothing) {
    letters_[point] = one_of(CodePoints({{point, point}}));
  }
  return letters_[point];
}

RegexId RegexNodes::concat(RegexId first, RegexId second) {
  std::vector<RegexId> heads;
  while (nodes_[first].kind == Kind::kConcat) {
    heads.push_back(nodes_[first].a);
    first = nodes_[first].b;
  }
  RegexId whole = prepend(first, second);
  for (auto head = heads.rbegin(); head != heads.rend(); ++head) {
    whole = prepend(*head, whole);
  }
  return whole;
}

RegexId RegexNodes::prepend(RegexId head, RegexId tail) {
  if (head == RegexStore::kNothing || tail == RegexStore::kNothing) {
    return RegexStore::kNothing;
  }
  if (head == RegexStore::kEmpty || tail == RegexStore::kEmpty) {
    return head == RegexStore::kEmpty ? tail : head;
  }
  const bool covered = (tail == RegexStore::kAll && nodes_[head].nullable) ||
                       (head == RegexStore::kAll && nodes_[tail].nullable);
  if (covered) {
    return RegexStore::kAll;
  }
  const bool chain = nodes_[tail].kind == Kind::kConcat;
  if (const auto joined = join_repeats(head, chain ? nodes_[tail].a : tail)) {
    return chain ? prepend(*joined, nodes_[tail].b) : *joined;
  }
  const Node& left = nodes_[head];
  const Node& right = nodes_[tail];
  return add({.kind = Kind::kConcat,
              .nullable = left.nullable && right.nullable,
              .extended = left.extended || right.extended,
              .a = head,
              .b = tail,
              .shortest = saturating_add(left.shortest, right.shortest),
              .longest = saturating_add(left.longest, right.longest)});
}

/// r{a,b} r{c,d} = r{a+c,b+d}
std::optional<RegexId> RegexNodes::join_repeats(RegexId head, RegexId tail) {
  const Counted left = counted(head);
  const Counted right = counted(tail);
  if (left.base != right.base) {
    return std::nullopt;
  }
  const auto min = exact(left.min, right.min, saturating_add(left.min, right.min));
  const auto max = exact(left.max, right.max, saturating_add(left.max, right.max));
  if (!min || !max || *min == kInfinite) {
    return std::nullopt;
  }
  return repeat(left.base, *min, *max);
}

RegexId RegexNodes::repeat(RegexId regex, uint64_t min, uint64_t max) {
  const Node node = nodes_[regex];
  if (max == 0 || regex == RegexStore::kEmpty) {
    return RegexStore::kEmpty;
  }
  if (regex == RegexStore::kNothing) {
    return min == 0 ? RegexStore::kEmpty : RegexStore::kNothing;
  }
  if (node.nullable) {
    min = 0;
  }
  if (max == 1) {
    if (min == 1 || node.nullable) {
      return regex;
    }
    if (node.kind == Kind::kOr) {
      return any_of({RegexStore::kEmpty, regex});
    }
  }
  if (node.kind == Kind::kRepeat) {
    if (const auto flat = repeat_of_repeat(node, min, max)) {
      return *flat;
    }
  }
  return add({.kind = Kind::kRepeat,
              .nullable = min == 0,
              .extended = node.extended,
              .a = regex,
              .min = min,
              .max = max,
              .shortest = saturating_multiply(node.shortest, min),
              .longest = saturating_multiply(node.longest, max)});
}

/// s{a,b}{n,m} = s{na,mb} when the counts between have no gap.
std::optional<RegexId> RegexNodes::repeat_of_repeat(const Node& inner, uint64_t min, uint64_t max) {
  const uint64_t times = std::max<uint64_t>(min, 1);
  const auto next_first = exact(times + 1, inner.min, saturating_multiply(times + 1, inner.min));
  const uint64_t last = saturating_multiply(times, inner.max);
  const auto low = exact(min, inner.min, saturating_multiply(min, inner.min));
  const auto high = exact(max, inner.max, saturating_multiply(max, inner.max));
  if (!next_first || !low || !high) {
    return std::nullopt;
  }
  const bool no_gap = min == max || *next_first <= saturating_add(last, 1);
  const bool joins_empty = min > 0 || inner.min <= 1;
  if (!no_gap || !joins_empty) {
    return std::nullopt;
  }
  return repeat(inner.a, *low, *high);
}

RegexId RegexNodes::complement(RegexId regex) {
  const Node node = nodes_[regex];
  if (regex == RegexStore::kNothing) {
    return RegexStore::kAll;
  }
  if (node.kind == Kind::kNot) {
    return node.a;
  }
  const Counted lengths = counted(regex);
  if (lengths.base == kAnyPoint && lengths.tail == RegexStore::kEmpty) {
    std::vector<RegexId> others;
    if (lengths.min > 0) {
      others.push_back(repeat(kAnyPoint, 0, lengths.min - 1));
    }
    if (lengths.max != kInfinite) {
      others.push_back(repeat(kAnyPoint, lengths.max + 1, kInfinite));
    }
    return any_of(std::move(others));
  }
  if (regex == RegexStore::kEmpty) {
    return repeat(kAnyPoint, 1, kInfinite);
  }
  return add({.kind = Kind::kNot,
              .nullable = !node.nullable,
              .extended = true,
              .a = regex,
              .shortest = node.nullable ? 1u : 0u,
              .longest = kInfinite});
}

RegexNodes::Counted RegexNodes::counted(RegexId id) const {
  const Node& node = nodes_[id];
  if (node.kind == Kind::kRepeat) {
    return {.tail = RegexStore::kEmpty, .base = node.a, .min = node.min, .max = node.max};
  }
  if (node.kind == Kind::kConcat) {
    Counted head = counted(node.a);
    head.tail = node.b;
    return head;
  }
  return {.tail = RegexStore::kEmpty, .base = id, .min = 1, .max = 1};
}

}  // namespace specdec
