#include "grammar/schema/formula.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace specdec {

using Type = JsonValue::Type;

FormulaStore::FormulaStore(RegexStore& regexes) : regexes_(regexes) {
  nodes_.add({Kind::kConstant, {}, {}});        // kFalse
  nodes_.add({Kind::kConstant, {}, {kFalse}});  // kTrue
}

uint64_t FormulaStore::NodeHash::operator()(const Node& node) const {
  const Atom& atom = node.atom;
  WordHash hash;
  hash.add(static_cast<uint64_t>(node.kind) << 8 | static_cast<uint64_t>(atom.kind));
  if (node.kind == Kind::kAtom) {
    hash.add(static_cast<uint64_t>(atom.a) << 32 | atom.b).add(atom.formula);
    hash.add(atom.min).add(atom.max);
  }
  return hash.add_all(node.parts).value();
}

uint64_t FormulaStore::KeySetHash::operator()(const KeySet& set) const {
  return WordHash().add(uint64_t{set.base} << 32 | set.name).add_all(set.excluded).value();
}

FormulaId FormulaStore::atom(const Atom& atom) {
  const bool counts = atom.kind == AtomKind::kLength || atom.kind == AtomKind::kItemCount ||
                      atom.kind == AtomKind::kPropertyCount || atom.kind == AtomKind::kContains;
  const bool vacuous = (atom.kind == AtomKind::kTypes && atom.a == kAllTypes) ||
                       (counts && atom.min == 0 && atom.max == kUnbounded) ||
                       (atom.kind == AtomKind::kText && atom.a == RegexStore::kAll) ||
                       (atom.kind == AtomKind::kRange && atom.a == 0 && atom.b == 0) ||
                       ((atom.kind == AtomKind::kItem || atom.kind == AtomKind::kItems ||
                         atom.kind == AtomKind::kProperties) &&
                        atom.formula == kTrue &&
                        !(atom.kind == AtomKind::kProperties && key_sets_[atom.a].name != 0));
  if (vacuous) {
    return kTrue;
  }
  if (atom.kind == AtomKind::kTypes && atom.a == 0) {
    return kFalse;
  }
  return nodes_.intern({Kind::kAtom, atom, {}});
}

FormulaId FormulaStore::combine(Kind kind, std::span<const FormulaId> parts) {
  const FormulaId neutral = kind == Kind::kAll ? kTrue : kFalse;
  const FormulaId absorbing = kind == Kind::kAll ? kFalse : kTrue;
  combined_.kind = kind;
  std::vector<FormulaId>& flat = combined_.parts;
  flat.clear();
  TypeMask mask = kind == Kind::kAll ? kAllTypes : 0;
  for (const FormulaId part : parts) {
    const auto take = [&](FormulaId id) {
      if (nodes_[id].kind == Kind::kAtom && nodes_[id].atom.kind == AtomKind::kTypes) {
        mask = kind == Kind::kAll ? mask & nodes_[id].atom.a : mask | nodes_[id].atom.a;
      } else if (id != neutral) {
        flat.push_back(id);
      }
    };
    if (nodes_[part].kind == kind) {
      std::for_each(nodes_[part].parts.begin(), nodes_[part].parts.end(), take);
    } else {
      take(part);
    }
  }
  const FormulaId by_type = mask == 0 ? kFalse : types(mask);
  if (by_type != neutral) {
    flat.push_back(by_type);
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (std::find(flat.begin(), flat.end(), absorbing) != flat.end()) {
    return absorbing;
  }
  if (flat.size() < 2) {
    return flat.empty() ? neutral : flat.front();
  }
  return nodes_.intern(combined_);
}

FormulaId FormulaStore::negate(FormulaId formula) {
  if (formula <= kTrue) {
    return formula == kTrue ? kFalse : kTrue;
  }
  if (formula < negations_.size() && negations_[formula] != kFalse) {
    return negations_[formula];
  }
  FormulaId result = 0;
  if (nodes_[formula].kind == Kind::kAtom) {
    const Atom atom = nodes_[formula].atom;
    result = negate_atom(atom);
  } else {
    const Kind kind = nodes_[formula].kind;
    std::vector<FormulaId> parts = nodes_[formula].parts;
    for (FormulaId& part : parts) {
      part = negate(part);
    }
    if (kind == Kind::kAll) {
      join_absences(parts);
    }
    result = combine(kind == Kind::kAll ? Kind::kAny : Kind::kAll, parts);
  }
  negations_.resize(std::max<size_t>(negations_.size(), nodes_.size()));
  return negations_[formula] = result;
}

/// The atom when the formula is "an object, and the atom".
const Atom* FormulaStore::of_objects(FormulaId formula) const {
  const Node& node = nodes_[formula];
  if (node.kind != Kind::kAll || node.parts.size() != 2) {
    return nullptr;
  }
  const Atom* atoms[] = {&nodes_[node.parts[0]].atom, &nodes_[node.parts[1]].atom};
  const bool all_atoms =
      nodes_[node.parts[0]].kind == Kind::kAtom && nodes_[node.parts[1]].kind == Kind::kAtom;
  for (size_t i = 0; i < 2 && all_atoms; ++i) {
    if (atoms[i]->kind == AtomKind::kTypes && atoms[i]->a == type_bit(Type::kObject)) {
      return atoms[1 - i];
    }
  }
  return nullptr;
}

/// An object without the property, or one in which it exists and satisfies G: this is one in which
/// G holds of the property, if there is one. Of "required, and F of it" the contrary is such; told
/// as one, many of these do not multiply.
void FormulaStore::join_absences(std::vector<FormulaId>& parts) {
  const auto atom_of_name = [&](FormulaId part, AtomKind kind) {
    const Atom* atom = of_objects(part);
    return atom != nullptr && atom->kind == kind && key_sets_[atom->a].name != 0 ? atom : nullptr;
  };
  FlatMap absences;  // by the set of the name: which part
  for (uint32_t i = 0; i < parts.size(); ++i) {
    const Atom* absent = atom_of_name(parts[i], AtomKind::kProperties);
    if (absent != nullptr && absences.find(absent->a) == FlatMap::kNone) {
      absences.add(absent->a, i);
    }
  }
  for (FormulaId& part : parts) {
    const Atom* exists = atom_of_name(part, AtomKind::kExists);
    const uint32_t i = exists != nullptr ? absences.find(exists->a) : FlatMap::kNone;
    if (i != FlatMap::kNone) {
      Atom joined = *of_objects(parts[i]);
      joined.formula = any_of({joined.formula, exists->formula});
      parts[i] = all_of({only(Type::kObject), atom(joined)});
      part = kFalse;
    }
  }
}

/// A count that is not between min and max: fewer or more, of a value of that type.
FormulaId FormulaStore::outside(Type type, Atom count) {
  std::vector<FormulaId> parts;
  if (count.min > 0) {
    Atom fewer = count;
    fewer.min = 0;
    fewer.max = count.min - 1;
    parts.push_back(atom(fewer));
  }
  if (count.max != kUnbounded) {
    Atom more = count;
    more.min = count.max + 1;
    more.max = kUnbounded;
    parts.push_back(atom(more));
  }
  return all_of({only(type), any_of(parts)});
}

FormulaId FormulaStore::negate_range(const Atom& a) {
  std::vector<FormulaId> parts;
  if (a.a != 0) {
    parts.push_back(atom({.kind = AtomKind::kRange, .b = a.a, .min = (a.min & 1) == 0 ? 2U : 0U}));
  }
  if (a.b != 0) {
    parts.push_back(atom({.kind = AtomKind::kRange, .a = a.b, .min = (a.min & 2) == 0 ? 1U : 0U}));
  }
  return all_of({only(Type::kNumber), any_of(parts)});
}

FormulaId FormulaStore::negate_atom(const Atom& a) {
  const auto array = [&](FormulaId part) { return all_of({only(Type::kArray), part}); };
  const auto object = [&](FormulaId part) { return all_of({only(Type::kObject), part}); };
  switch (a.kind) {
    case AtomKind::kTypes:
      return types(kAllTypes & ~a.a);
    case AtomKind::kText:
      return all_of(
          {only(Type::kString), atom({.kind = AtomKind::kText, .a = regexes_.complement(a.a)})});
    case AtomKind::kLength:
      return outside(Type::kString, a);
    case AtomKind::kRange:
      return negate_range(a);
    case AtomKind::kMultiple:
      return all_of({only(Type::kNumber), atom({.kind = AtomKind::kNotMultiple, .a = a.a})});
    case AtomKind::kNotMultiple:
      return all_of({only(Type::kNumber), atom({.kind = AtomKind::kMultiple, .a = a.a})});
    case AtomKind::kNumbers:
      return all_of({only(Type::kNumber), none_of_numbers(a.a)});
    case AtomKind::kNotNumbers:
      return all_of({only(Type::kNumber), atom({.kind = AtomKind::kNumbers, .a = a.a})});
    case AtomKind::kWrittenWhole:
      return all_of({only(Type::kNumber), atom({.kind = AtomKind::kNotWrittenWhole})});
    case AtomKind::kNotWrittenWhole:
      return all_of({only(Type::kNumber), written_whole()});
    case AtomKind::kItem:
      return array(
          all_of({atom({.kind = AtomKind::kItemCount, .min = a.min + 1, .max = kUnbounded}),
                  atom({.kind = AtomKind::kItem, .min = a.min, .formula = negate(a.formula)})}));
    case AtomKind::kItems:
      return array(atom({.kind = AtomKind::kContains,
                         .a = static_cast<uint32_t>(a.min),
                         .min = 1,
                         .max = kUnbounded,
                         .formula = negate(a.formula)}));
    case AtomKind::kContains:
    case AtomKind::kItemCount:
      return outside(Type::kArray, a);
    case AtomKind::kUnique:
      return array(atom({.kind = AtomKind::kRepeated, .a = a.a}));
    case AtomKind::kRepeated:
      return array(atom({.kind = AtomKind::kUnique, .a = a.a}));
    case AtomKind::kProperties:
      return object(atom({.kind = AtomKind::kExists, .a = a.a, .formula = negate(a.formula)}));
    case AtomKind::kExists:
      return object(atom({.kind = AtomKind::kProperties, .a = a.a, .formula = negate(a.formula)}));
    case AtomKind::kRequired:
      return object(properties(one_name(a.a), kFalse));
    case AtomKind::kPropertyCount:
      return outside(Type::kObject, a);
    case AtomKind::kSchema:
      return atom({.kind = AtomKind::kNotSchema, .a = a.a, .b = a.b});
    case AtomKind::kNotSchema:
      return atom({.kind = AtomKind::kSchema, .a = a.a, .b = a.b});
  }
  return kFalse;
}

FormulaId FormulaStore::range(const Decimal* lower, bool lower_open, const Decimal* upper,
                              bool upper_open) {
  Atom a{.kind = AtomKind::kRange};
  a.a = lower == nullptr ? 0 : add_decimal(*lower) + 1;
  a.b = upper == nullptr ? 0 : add_decimal(*upper) + 1;
  a.min = (lower != nullptr && lower_open ? 1U : 0U) + (upper != nullptr && upper_open ? 2U : 0U);
  return atom(a);
}

FormulaId FormulaStore::multiple(const Decimal& unit) {
  return atom({.kind = AtomKind::kMultiple, .a = add_decimal(unit)});
}

FormulaId FormulaStore::properties(KeySet names, FormulaId formula, uint32_t rank) {
  return atom({.kind = AtomKind::kProperties,
               .a = add_key_set(std::move(names)),
               .b = rank,
               .formula = formula});
}

FormulaId FormulaStore::exists(KeySet names, FormulaId formula) {
  return atom({.kind = AtomKind::kExists, .a = add_key_set(std::move(names)), .formula = formula});
}

FormulaId FormulaStore::numbers(std::vector<Decimal> values) {
  const auto less = [](const Decimal& a, const Decimal& b) { return compare(a, b) < 0; };
  std::sort(values.begin(), values.end(), less);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.size() == 1) {
    return range(&values.front(), false, &values.front(), false);
  }
  return atom({.kind = AtomKind::kNumbers, .a = number_sets_.intern(std::move(values))});
}

/// Few are left out between bounds, whose numbers can be told by their first digits.
FormulaId FormulaStore::none_of_numbers(uint32_t set) {
  constexpr size_t kFew = 4;
  const std::vector<Decimal>& values = number_sets_[set];
  if (values.size() > kFew) {
    return atom({.kind = AtomKind::kNotNumbers, .a = set});
  }
  std::vector<FormulaId> parts;
  for (const Decimal& value : values) {
    parts.push_back(negate(range(&value, false, &value, false)));
  }
  return all_of(parts);
}

FormulaId FormulaStore::required(NameId name) {
  return atom({.kind = AtomKind::kRequired, .a = name});
}

FormulaId FormulaStore::equals_any(const std::vector<JsonValue>& values) {
  std::vector<FormulaId> parts;
  std::vector<std::u32string> texts;
  std::vector<Decimal> numbers;
  for (const JsonValue& value : values) {
    if (value.is(Type::kString)) {
      texts.push_back(to_code_points(value.text));
    } else if (value.is(Type::kNumber)) {
      numbers.push_back(parse_decimal(value.text));
    } else {
      parts.push_back(equals(value));
    }
  }
  if (!texts.empty()) {
    const RegexId language = regexes_.words(std::move(texts));
    parts.push_back(all_of({only(Type::kString), atom({.kind = AtomKind::kText, .a = language})}));
  }
  if (!numbers.empty()) {
    parts.push_back(all_of({only(Type::kNumber), this->numbers(std::move(numbers))}));
  }
  return any_of(parts);
}

FormulaId FormulaStore::equals(const JsonValue& value) {
  std::vector<FormulaId> parts = {only(value.type)};
  switch (value.type) {
    case Type::kNull:
    case Type::kFalse:
    case Type::kTrue:
      break;
    case Type::kNumber: {
      const Decimal number = parse_decimal(value.text);
      parts.push_back(range(&number, false, &number, false));
      break;
    }
    case Type::kString:
      return equals_any({value});
    case Type::kArray:
      parts.push_back(atom(
          {.kind = AtomKind::kItemCount, .min = value.items.size(), .max = value.items.size()}));
      for (size_t i = 0; i < value.items.size(); ++i) {
        parts.push_back(
            atom({.kind = AtomKind::kItem, .min = i, .formula = equals(value.items[i])}));
      }
      break;
    case Type::kObject:
      parts.push_back(atom({.kind = AtomKind::kPropertyCount,
                            .min = value.members.size(),
                            .max = value.members.size()}));
      for (const auto& [key, part] : value.members) {
        const NameId id = name(key);
        parts.push_back(required(id));
        parts.push_back(properties(one_name(id), equals(part)));
      }
      break;
  }
  return all_of(parts);
}

NameId FormulaStore::name(std::string_view utf8) {
  const auto [entry, fresh] =
      name_ids_.emplace(std::string(utf8), static_cast<NameId>(names_.size()));
  if (fresh) {
    names_.emplace_back(utf8);
    name_points_.push_back(to_code_points(utf8));
  }
  return entry->second;
}

bool FormulaStore::in_key_set(KeySetId id, NameId name) {
  const KeySet& set = key_sets_[id];
  if (set.name != 0) {
    return set.name == name + 1;
  }
  if (std::binary_search(set.excluded.begin(), set.excluded.end(), name)) {
    return false;
  }
  if (set.base == RegexStore::kAll) {
    return true;
  }
  const uint64_t key = uint64_t{set.base} << 32 | name;
  uint32_t known = matches_.find(key);
  if (known == FlatMap::kNone) {
    known = regexes_.matches(set.base, name_points_[name]) ? 1 : 0;
    matches_.add(key, known);
  }
  return known == 1;
}

KeySetId FormulaStore::add_key_set(KeySet set) {
  std::sort(set.excluded.begin(), set.excluded.end());
  return key_sets_.intern(std::move(set));
}

uint32_t FormulaStore::add_decimal(const Decimal& value) { return decimals_.intern(value); }

}  // namespace specdec
