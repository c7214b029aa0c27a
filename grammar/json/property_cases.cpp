#include "grammar/json/property_cases.h"

#include <algorithm>
#include <functional>
#include <map>

namespace specdec {
namespace {

constexpr double kManyWays = 1e300;
constexpr size_t kFewTests = 2;  ///< of a property
constexpr int kMaxDepth = 200;   ///< of subschemas

}  // namespace

// ---- What choices compare with constants --------------------------------------------------------

double PropertyCases::count_ways(std::span<const FormulaId> choices) {
  double ways = 1;
  for (const FormulaId choice : choices) {
    ways = std::min(ways * std::max(1.0, tests(choice).ways), kManyWays);
  }
  return ways;
}

const PropertyCases::Tests& PropertyCases::tests(FormulaId formula, int depth) {
  if (const auto known = tests_.find(formula); known != tests_.end()) {
    return known->second;
  }
  Tests found = find_tests(formula, depth);
  return tests_[formula] = std::move(found);
}

PropertyCases::Tests PropertyCases::find_tests(FormulaId formula, int depth) {
  const Truth truth = truths_.of(formula, JsonValue::Type::kObject);
  if (truth != Truth::kOpen) {
    return {truth == Truth::kTrue ? 1.0 : 0.0, {}};
  }
  if (formulas_.kind(formula) == FormulaStore::Kind::kAtom) {
    return tests_of_atom(formulas_.atom_of(formula), depth);
  }
  const bool all = formulas_.kind(formula) == FormulaStore::Kind::kAll;
  Tests found{all ? 1.0 : 0.0, {}};
  for (const FormulaId part : formulas_.parts(formula)) {
    const Tests& one = tests(part, depth);
    found.ways = std::min(all ? found.ways * one.ways : found.ways + one.ways, kManyWays);
    found.all.insert(found.all.end(), one.all.begin(), one.all.end());
  }
  std::ranges::sort(found.all);
  found.all.erase(std::unique(found.all.begin(), found.all.end()), found.all.end());
  return found;
}

PropertyCases::Tests PropertyCases::tests_of_atom(const Atom& atom, int depth) {
  if (atom.is_schema()) {
    return depth < kMaxDepth ? tests(schemas_.expand(atom), depth + 1) : Tests();
  }
  if (atom.kind != AtomKind::kProperties && atom.kind != AtomKind::kExists) {
    return {};
  }
  const NameId name = formulas_.key_set(atom.a).name;
  const FormulaId listing = name == 0 ? FormulaStore::kFalse : clauses_.listing_of(atom.formula);
  if (listing == FormulaStore::kFalse) {
    return {};
  }
  return {1, {{name - 1, listing, atom.kind == AtomKind::kProperties ? atom.b : kNoRank}}};
}

std::vector<std::vector<PropertyCases::Test>> PropertyCases::many_tests(
    std::span<const FormulaId> choices) {
  std::vector<Test> all;
  for (const FormulaId choice : choices) {
    const std::vector<Test>& more = tests(choice).all;
    all.insert(all.end(), more.begin(), more.end());
  }
  std::ranges::sort(all);
  const auto same = [](const Test& a, const Test& b) {
    return a.name == b.name && a.listing == b.listing;
  };
  all.erase(std::unique(all.begin(), all.end(), same), all.end());  // keeps the lowest rank
  std::vector<std::vector<Test>> many;
  for (auto at = all.begin(); at != all.end();) {
    const auto next = std::ranges::find_if(
        at, all.end(), [&](NameId name) { return name != at->name; }, &Test::name);
    if (static_cast<size_t>(next - at) > kFewTests) {
      many.emplace_back(at, next);
    }
    at = next;
  }
  constexpr size_t kMax = 4;
  std::ranges::stable_sort(many, std::greater<>(), &std::vector<Test>::size);
  many.resize(std::min(many.size(), kMax));
  return many;
}

// ---- Cases --------------------------------------------------------------------------------------

/// What is left of formulas where it is known how the property is.
class PropertyCases::Reader {
 public:
  Reader(PropertyCases& cases, std::span<const Test> tests)
      : all_(cases), formulas_(cases.formulas_), name_(tests.front().name) {
    for (size_t i = 0; i < tests.size(); ++i) {
      places_[tests[i].listing] = i;
    }
  }

  /// What is left of the choices where the property has one of these values, or, for nullptr, is
  /// absent; kFalse alone when one cannot hold.
  std::vector<FormulaId> read_all(std::span<const FormulaId> choices, const ValueClass* values) {
    all_.questions_.count_step();
    values_ = values;
    ++case_;
    std::vector<FormulaId> all;
    for (const FormulaId choice : choices) {
      const FormulaId left = read(choice);
      if (left == FormulaStore::kFalse) {
        return {left};
      }
      if (left != FormulaStore::kTrue) {
        all.push_back(left);
      }
    }
    return all;
  }

 private:
  static constexpr uint32_t kAlways = ~uint32_t{0};  ///< it does not speak of the property
  static constexpr uint32_t kNever = kAlways - 1;
  /// What is left of a formula.
  struct Known {
    uint32_t when = 0;  ///< in which case; kAlways: in any the formula itself; 0: not looked at
    FormulaId left = FormulaStore::kTrue;
  };

  FormulaId read(FormulaId formula) {
    if (formula <= FormulaStore::kTrue) {
      return formula;
    }
    const bool atom = formulas_.kind(formula) == FormulaStore::Kind::kAtom;
    if (atom && !formulas_.atom_of(formula).is_schema()) {
      return read_literal(formula);
    }
    if (formula >= known_.size()) {
      known_.resize(formulas_.size());
    }
    if (known_[formula].when == 0) {
      const std::vector<Test>& tests = all_.tests(formula).all;
      const bool speaks = std::ranges::binary_search(tests, name_, {}, &Test::name);
      known_[formula].when = speaks ? kNever : kAlways;
    }
    if (known_[formula].when == kAlways) {
      return formula;
    }
    if (known_[formula].when != case_) {
      const FormulaId left = atom ? read_schema(formula) : read_parts(formula);
      known_[formula] = {case_, left};
    }
    return known_[formula].left;
  }

  FormulaId read_schema(FormulaId formula) {
    const FormulaId meaning = all_.schemas_.expand(formulas_.atom_of(formula));
    const FormulaId left = read(meaning);
    return left == meaning ? formula : left;
  }

  FormulaId read_parts(FormulaId formula) {
    const bool all = formulas_.kind(formula) == FormulaStore::Kind::kAll;
    const FormulaId deciding = all ? FormulaStore::kFalse : FormulaStore::kTrue;
    std::vector<FormulaId> left;
    for (const FormulaId part : formulas_.parts(formula)) {
      left.push_back(read(part));
      if (left.back() == deciding) {
        return deciding;
      }
    }
    return all ? formulas_.all_of(left) : formulas_.any_of(left);
  }

  FormulaId read_literal(FormulaId formula) {
    const Atom& atom = formulas_.atom_of(formula);
    if (atom.kind == AtomKind::kRequired) {
      return atom.a == name_ ? constant(values_ != nullptr) : formula;
    }
    const bool exists = atom.kind == AtomKind::kExists;
    if ((!exists && atom.kind != AtomKind::kProperties) ||
        formulas_.key_set(atom.a).name != name_ + 1) {
      return formula;
    }
    if (values_ == nullptr) {
      return constant(!exists);
    }
    if (atom.formula <= FormulaStore::kTrue) {
      return atom.formula;
    }
    const FormulaId listing = all_.clauses_.listing_of(atom.formula);
    const auto place = places_.find(listing);
    return place == places_.end()
               ? formula
               : constant(values_->truths[place->second] == (listing == atom.formula));
  }

  static FormulaId constant(bool holds) {
    return holds ? FormulaStore::kTrue : FormulaStore::kFalse;
  }

  PropertyCases& all_;
  FormulaStore& formulas_;
  NameId name_;
  std::unordered_map<FormulaId, size_t> places_;  ///< of what lists constants, among the truths
  const ValueClass* values_ = nullptr;
  uint32_t case_ = 0;
  std::vector<Known> known_;  ///< by formula
};

std::optional<std::vector<PropertyCases::Case>> PropertyCases::split(
    std::span<const FormulaId> choices) {
  if (choices.size() < 2) {
    return std::nullopt;
  }
  constexpr double kFarFewer = 4;
  double fewest = count_ways(choices) / kFarFewer;
  std::optional<std::vector<Case>> best;
  for (const std::vector<Test>& tests : many_tests(choices)) {
    std::vector<Case> cases = split_by(tests, choices);
    double ways = 0;
    for (const Case& one : cases) {
      ways += count_ways(one.left);
    }
    if (ways < fewest) {
      fewest = ways;
      best = std::move(cases);
    }
  }
  return best;
}

std::vector<PropertyCases::Case> PropertyCases::split_by(const std::vector<Test>& tests,
                                                         std::span<const FormulaId> choices) {
  uint32_t rank = kNoRank;
  std::vector<FormulaId> listing;
  for (const Test& test : tests) {
    rank = std::min(rank, test.rank);
    listing.push_back(test.listing);
  }
  const std::vector<ValueClass> values = find_value_classes(feasibility_, listing);
  Reader reader(*this, tests);
  const KeySet name = formulas_.one_name(tests.front().name);
  std::vector<Case> cases;
  cases.push_back(
      {formulas_.properties(name, FormulaStore::kFalse, rank), reader.read_all(choices, nullptr)});
  std::map<std::vector<FormulaId>, std::vector<bool>> alike;  // by what is left: of which values
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<bool>& which = alike[reader.read_all(choices, &values[i])];
    which.resize(values.size());
    which[i] = true;
  }
  for (const auto& [left, which] : alike) {
    const FormulaId value = formulas_.properties(name, join(values, which), rank);
    cases.push_back({formulas_.all_of({formulas_.required(name.name - 1), value}), left});
  }
  std::erase_if(cases, [](const Case& one) {
    return !one.left.empty() && one.left.front() == FormulaStore::kFalse;
  });
  return cases;
}

/// "The value is one of those."
FormulaId PropertyCases::join(const std::vector<ValueClass>& all, const std::vector<bool>& which) {
  ValueClass joined{{}, which.front(), {}};  // of others: all values but those of the groups left
  for (size_t i = 1; i < all.size(); ++i) {
    if (which[i] != joined.others) {
      joined.values.insert(joined.values.end(), all[i].values.begin(), all[i].values.end());
    }
  }
  return joined.formula(formulas_);
}

}  // namespace specdec
