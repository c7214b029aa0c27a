// Unions and intersections of RegexNodes, in similarity form.
#include <algorithm>

#include "grammar/regex/regex_nodes.h"

namespace specdec {
namespace {

using Kind = RegexNodes::Kind;

void sort_unique(std::vector<RegexId>& parts) {
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
}

bool has(const std::vector<RegexId>& sorted, RegexId id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

}  // namespace

/// Replaces operands of the same kind by their own, and sorts.
void RegexNodes::flatten(Kind kind, std::vector<RegexId>& parts) const {
  std::vector<RegexId> flat;
  flat.reserve(parts.size());
  for (const RegexId part : parts) {
    if (nodes_[part].kind == kind) {
      const auto inner = operands(part);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(part);
    }
  }
  sort_unique(flat);
  parts = std::move(flat);
}

bool RegexNodes::has_opposites(const std::vector<RegexId>& parts) const {
  return std::ranges::any_of(parts, [&](RegexId part) {
    return nodes_[part].kind == Kind::kNot && has(parts, nodes_[part].a);
  });
}

/// True when the intersection has an r and a !(r|s).
bool RegexNodes::has_excluded(const std::vector<RegexId>& parts) const {
  return std::ranges::any_of(parts, [&](RegexId part) {
    const RegexId inner = nodes_[part].a;
    return nodes_[part].kind == Kind::kNot && nodes_[inner].kind == Kind::kOr &&
           std::ranges::any_of(parts, [&](RegexId other) {
             return std::ranges::binary_search(operands(inner), other);
           });
  });
}

RegexId RegexNodes::any_of(std::vector<RegexId> parts) {
  flatten(Kind::kOr, parts);
  std::erase(parts, RegexStore::kNothing);
  if (has(parts, RegexStore::kAll) || has_opposites(parts)) {
    return RegexStore::kAll;
  }
  if (parts.size() > 1) {
    unite_classes(parts);
    unite_repeats(parts);
  }
  if (parts.empty()) {
    return RegexStore::kNothing;
  }
  return parts.size() == 1 ? parts[0] : add_operands(Kind::kOr, parts);
}

/// C T | D T = (C | D) T for classes C and D.
void RegexNodes::unite_classes(std::vector<RegexId>& parts) {
  std::vector<std::pair<RegexId, RegexId>> by_tail;  // tail, operand
  for (const RegexId part : parts) {
    const Counted view = counted(part);
    if (view.min == 1 && view.max == 1 && nodes_[view.base].kind == Kind::kClass) {
      by_tail.emplace_back(view.tail, part);
    }
  }
  std::sort(by_tail.begin(), by_tail.end());
  std::vector<RegexId> merged;
  std::vector<RegexId> replaced;
  for (size_t i = 0; i < by_tail.size();) {
    const size_t first = i;
    std::vector<CodePoints::Range> ranges;
    for (; i < by_tail.size() && by_tail[i].first == by_tail[first].first; ++i) {
      const auto& more = points(counted(by_tail[i].second).base).ranges();
      ranges.insert(ranges.end(), more.begin(), more.end());
    }
    if (i - first > 1) {
      for (size_t k = first; k < i; ++k) {
        replaced.push_back(by_tail[k].second);
      }
      merged.push_back(prepend(one_of(CodePoints(ranges)), by_tail[first].first));
    }
  }
  sort_unique(replaced);
  std::erase_if(parts, [&](RegexId part) { return has(replaced, part); });
  parts.insert(parts.end(), merged.begin(), merged.end());
  sort_unique(parts);
}

/// r{a,b} T | r{c,d} T = r{a,d} T when the counts meet, and T | r{1,d} T = r{0,d} T.
void RegexNodes::unite_repeats(std::vector<RegexId>& parts) {
  std::vector<Counted> views;
  for (const RegexId part : parts) {
    if (part != RegexStore::kEmpty) {
      views.push_back(counted(part));
    }
  }
  std::sort(views.begin(), views.end());
  std::vector<RegexId> whole;
  std::vector<RegexId> tails;  // that need not stand alone
  std::vector<RegexId> absorbing;
  for (size_t i = 0; i < views.size();) {
    Counted joined = views[i];
    for (++i; i < views.size() && views[i].tail == joined.tail && views[i].base == joined.base &&
              (joined.max == kInfinite || views[i].min <= joined.max + 1);
         ++i) {
      joined.max = std::max(joined.max, views[i].max);
    }
    const bool absorbs = joined.min <= 1 && has(parts, joined.tail) &&
                         (tails.empty() || tails.back() != joined.tail);
    if (absorbs) {
      tails.push_back(joined.tail);
      joined.min = 0;
    }
    (absorbs ? absorbing : whole)
        .push_back(concat(repeat(joined.base, joined.min, joined.max), joined.tail));
  }
  std::erase_if(whole, [&](RegexId part) { return has(tails, part); });
  whole.insert(whole.end(), absorbing.begin(), absorbing.end());
  if (has(parts, RegexStore::kEmpty) &&
      std::ranges::none_of(whole, [&](RegexId part) { return nodes_[part].nullable; })) {
    whole.push_back(RegexStore::kEmpty);
  }
  sort_unique(whole);
  parts = std::move(whole);
}

RegexId RegexNodes::all_of(std::vector<RegexId> parts) {
  flatten(Kind::kAnd, parts);
  std::erase(parts, RegexStore::kAll);
  if (has(parts, RegexStore::kEmpty)) {
    const bool nullable =
        std::ranges::all_of(parts, [&](RegexId part) { return nodes_[part].nullable; });
    return nullable ? RegexStore::kEmpty : RegexStore::kNothing;
  }
  if (parts.size() > 1) {
    intersect_class_repeats(parts);
  }
  if (has(parts, RegexStore::kNothing) || has_opposites(parts) || has_excluded(parts)) {
    return RegexStore::kNothing;
  }
  if (parts.empty()) {
    return RegexStore::kAll;
  }
  return parts.size() == 1 ? parts[0] : add_operands(Kind::kAnd, parts);
}

/// C{a,b} & D{c,d} = (C & D){max(a,c),min(b,d)} for classes C and D.
void RegexNodes::intersect_class_repeats(std::vector<RegexId>& parts) {
  std::optional<Counted> common;
  CodePoints letters = CodePoints::all();
  std::vector<RegexId> others;
  for (const RegexId part : parts) {
    const Counted view = counted(part);
    if (view.tail != RegexStore::kEmpty || nodes_[view.base].kind != Kind::kClass) {
      others.push_back(part);
      continue;
    }
    letters = letters.intersect(points(view.base));
    common = common.value_or(view);
    common->min = std::max(common->min, view.min);
    common->max = std::min(common->max, view.max);
  }
  if (!common) {
    return;
  }
  others.push_back(common->min > common->max ? RegexStore::kNothing
                                             : repeat(one_of(letters), common->min, common->max));
  const bool is_all = others.back() == RegexStore::kAll;
  const bool is_empty = others.back() == RegexStore::kEmpty;
  sort_unique(others);
  if (is_all) {
    std::erase(others, RegexStore::kAll);
  }
  parts = is_empty ? std::vector{all_of(std::move(others))} : std::move(others);
}

}  // namespace specdec
