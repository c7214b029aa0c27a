#include "grammar/schema/disjointness_check.h"

#include <algorithm>

#include "grammar/interruption.h"
#include "grammar/schema/json_pointer.h"
#include "grammar/schema/value_store.h"

namespace specdec {
namespace {

using Type = JsonValue::Type;

constexpr int kMaxDisjointnessDepth = 8;  ///< of references and allOf
constexpr uint64_t kMaxDisjointnessLooks =
    100'000;  ///< of one oneOf; what else there is may be anything

TypeMask type_named(const JsonValue& name) {
  constexpr std::pair<const char*, TypeMask> kNames[] = {
      {"null", type_bit(Type::kNull)},
      {"boolean", type_bit(Type::kFalse) | type_bit(Type::kTrue)},
      {"integer", type_bit(Type::kNumber)},
      {"number", type_bit(Type::kNumber)},
      {"string", type_bit(Type::kString)},
      {"array", type_bit(Type::kArray)},
      {"object", type_bit(Type::kObject)}};
  for (const auto& [known, mask] : kNames) {
    if (name.text == known) {
      return mask;
    }
  }
  return kAllTypes;
}

template <class Set>
bool have_common(const Set& a, const Set& b) {
  return std::ranges::any_of(a, [&](const auto& value) { return b.contains(value); });
}

}  // namespace

void SchemaFormulas::DisjointnessCheck::add_types(SchemaNode node, Seen& seen) const {
  const JsonValue* type = schemas_.keywords_.find(node, "type");
  if (type == nullptr) {
    return;
  }
  TypeMask mask = type->is(Type::kArray) ? 0 : type_named(*type);
  for (const JsonValue& name : type->items) {
    mask |= type_named(name);
  }
  seen.types &= mask;
}

void SchemaFormulas::DisjointnessCheck::add_values(SchemaNode node, Seen& seen) const {
  const JsonValue* value = schemas_.keywords_.find(node, "const");
  const JsonValue* list = schemas_.keywords_.find(node, "enum");
  Constants values;
  TypeMask mask = 0;
  const auto add = [&](const JsonValue& one) {
    values.insert(to_json(canonical_value(one)));
    mask |= type_bit(one.type);
  };
  if (value != nullptr && !schemas_.keywords_.is_older(node, SchemaDraft::kDraft6)) {
    add(*value);
  } else if (list != nullptr && list->is(Type::kArray)) {
    std::ranges::for_each(list->items, add);
  } else {
    return;
  }
  seen.types &= mask;
  seen.told.values = std::move(values);
}

void SchemaFormulas::DisjointnessCheck::add_pattern(SchemaNode node, Seen& seen) const {
  const JsonValue* pattern = schemas_.keywords_.find(node, "pattern");
  const bool only_strings = (seen.types & ~type_bit(Type::kString)) == 0;
  if (only_strings && pattern != nullptr && pattern->is(Type::kString)) {
    seen.told.language = schemas_.assertions_.pattern(node, "pattern", pattern->text);
  }
}

void SchemaFormulas::DisjointnessCheck::add_required(SchemaNode node, Seen& seen) const {
  const JsonValue* required = schemas_.keywords_.find(node, "required");
  if (required != nullptr && required->is(Type::kArray)) {
    for (const JsonValue& name : required->items) {
      seen.required.insert("/" + escape_pointer(name.text));
    }
  }
}

void SchemaFormulas::DisjointnessCheck::add_properties(Subschema here, Seen& seen, int depth) {
  const JsonValue* properties = schemas_.keywords_.find(here.node, "properties");
  if (properties == nullptr) {
    return;
  }
  Seen own;
  add_required(here.node, own);
  for (const JsonMember& member : properties->members) {
    const SchemaNode node = schemas_.document_.child(here.node, "properties", member);
    const std::string pointer = "/" + escape_pointer(member.name);
    if (own.required.contains(pointer)) {
      add_property({node, here.scope}, pointer, seen, depth);
    } else {
      add_optional(node, pointer, seen);
    }
  }
}

void SchemaFormulas::DisjointnessCheck::add_property(Subschema property, const std::string& pointer,
                                                     Seen& seen, int depth) {
  const Seen& value = look(property, depth + 1);
  if (value.told.values || value.told.language) {
    merge(seen.properties[pointer], value.told);
  }
  if ((value.types & ~type_bit(Type::kObject)) != 0) {
    return;
  }
  for (const auto& [below, told] : value.properties) {
    if (looks_ <= kMaxDisjointnessLooks && value.required.contains(below)) {
      merge(seen.properties[pointer + below], told);
      seen.required.insert(pointer + below);
    }
  }
}

/// A property that another part may require, as the base of discriminated objects does: of these
/// one constant is enough, which is seen without looking further.
void SchemaFormulas::DisjointnessCheck::add_optional(SchemaNode value, const std::string& pointer,
                                                     Seen& seen) {
  if (schemas_.keywords_.find(value, "$ref") != nullptr &&
      schemas_.keywords_.is_older(value, SchemaDraft::k2019)) {
    return;  // what stands beside it says nothing
  }
  const JsonValue* list = schemas_.keywords_.find(value, "enum");
  const bool is_one = schemas_.keywords_.find(value, "const") != nullptr ||
                      (list != nullptr && list->items.size() == 1);
  if (is_one && schemas_.document_.has_assertions(value)) {
    Seen constant;
    add_values(value, constant);
    if (constant.told.values) {
      merge(seen.properties[pointer], constant.told);
    }
  }
}

void SchemaFormulas::DisjointnessCheck::merge(Told& told, const Told& more) {
  if (more.values) {
    looks_ += more.values->size();
    told.values = more.values;
  }
  if (more.language) {
    told.language = more.language;
  }
}

/// Merges what two formulas say that both hold.
void SchemaFormulas::DisjointnessCheck::merge(Seen& seen, const Seen& more) {
  seen.types &= more.types;
  merge(seen.told, more.told);
  for (const auto& [name, told] : more.properties) {
    ++looks_;
    merge(seen.properties[name], told);
  }
  seen.required.insert(more.required.begin(), more.required.end());
}

/// Leaves the properties that every value of the schema has.
void SchemaFormulas::DisjointnessCheck::drop_optional(Seen& seen) {
  std::erase_if(seen.properties,
                [&](const auto& property) { return !seen.required.contains(property.first); });
}

const SchemaFormulas::DisjointnessCheck::Seen& SchemaFormulas::DisjointnessCheck::look(
    Subschema here, int depth) {
  Interruption::check();
  ++looks_;
  const std::pair key(here.node, depth);
  if (const auto known = known_.find(key); known != known_.end()) {
    return known->second;
  }
  return known_.emplace(key, look_inside(here, depth)).first->second;
}

SchemaFormulas::DisjointnessCheck::Seen SchemaFormulas::DisjointnessCheck::look_inside(
    Subschema here, int depth) {
  Seen seen;
  const JsonValue& value = schemas_.document_.value(here.node);
  if (depth > kMaxDisjointnessDepth || looks_ > kMaxDisjointnessLooks || !value.is(Type::kObject)) {
    seen.types = value.is(Type::kFalse) ? 0 : kAllTypes;
    return seen;
  }
  const JsonValue* reference = schemas_.keywords_.find(here.node, "$ref");
  const bool alone =
      reference != nullptr && schemas_.keywords_.is_older(here.node, SchemaDraft::k2019);
  if (reference != nullptr && reference->is(Type::kString)) {
    const SchemaNode target = schemas_.document_.resolve(here.node, reference->text);
    merge(seen, look({target, here.scope}, depth + 1));
  }
  if (alone) {
    return seen;
  }
  if (schemas_.document_.has_assertions(here.node)) {
    add_types(here.node, seen);
    Seen values;
    add_values(here.node, values);
    merge(seen, values);
    add_pattern(here.node, seen);
    add_required(here.node, seen);
    add_properties(here, seen, depth);
  }
  const size_t parts = schemas_.keywords_.list_size(here.node, "allOf");
  for (size_t i = 0; i < parts && looks_ <= kMaxDisjointnessLooks; ++i) {
    merge(seen, look({schemas_.document_.child(here.node, "allOf", i), here.scope}, depth + 1));
  }
  return seen;
}

bool SchemaFormulas::DisjointnessCheck::is_apart(const Told& a, const Told& b) {
  if (a.values && b.values) {
    return !have_common(*a.values, *b.values);
  }
  return a.language && b.language &&
         schemas_.formulas_.regexes().are_apart(*a.language, *b.language, steps_left_);
}

bool SchemaFormulas::DisjointnessCheck::is_apart(const Seen& a, const Seen& b) {
  if (is_apart(a.told, b.told)) {
    return true;
  }
  const TypeMask both = a.types & b.types;
  if ((both & ~type_bit(Type::kObject)) != 0) {
    return false;
  }
  return both == 0 || std::ranges::any_of(a.properties, [&](const auto& property) {
           const auto other = b.properties.find(property.first);
           return other != b.properties.end() && is_apart(property.second, other->second);
         });
}

/// The property that tells most parts apart; empty: what they are themselves does.
std::string SchemaFormulas::DisjointnessCheck::best_property(const std::vector<Seen>& all) {
  std::map<std::string, size_t> counts;
  for (const Seen& seen : all) {
    counts[""] += seen.told.values ? 1 : 0;
    for (const auto& [name, told] : seen.properties) {
      counts[name] += told.values ? 1 : 0;
    }
  }
  const auto best = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
  return best->first;
}

std::vector<std::vector<size_t>> SchemaFormulas::DisjointnessCheck::overlaps_of_one_of(
    Subschema here, size_t size) {
  std::vector<Seen> all;
  for (size_t i = 0; i < size; ++i) {
    all.push_back(look({schemas_.document_.child(here.node, "oneOf", i), here.scope}, 0));
    drop_optional(all.back());
  }
  const std::string name = all.empty() ? "" : best_property(all);
  const auto constants = [&](const Seen& seen) -> const Constants* {
    const auto found = seen.properties.find(name);
    const bool only_objects = (seen.types & ~type_bit(Type::kObject)) == 0;
    const Told* told = name.empty()                                     ? &seen.told
                       : only_objects && found != seen.properties.end() ? &found->second
                                                                        : nullptr;
    return told != nullptr && told->values ? &*told->values : nullptr;
  };
  std::map<std::string, std::vector<size_t>> with;  // parts that may have a constant
  std::vector<size_t> others;
  std::vector<size_t> everything;
  for (size_t i = 0; i < size; ++i) {
    everything.push_back(i);
    const Constants* values = constants(all[i]);
    if (values == nullptr) {
      others.push_back(i);
      continue;
    }
    for (const std::string& value : *values) {
      with[value].push_back(i);
    }
  }
  std::vector<std::vector<size_t>> overlaps(size);
  for (size_t i = 0; i < size; ++i) {
    Interruption::check();
    std::set<size_t> near;  // each pair is looked at once
    const auto add = [&](const std::vector<size_t>& parts) {
      near.insert(std::upper_bound(parts.begin(), parts.end(), i), parts.end());
    };
    if (const Constants* values = constants(all[i])) {
      add(others);
      for (const std::string& value : *values) {
        add(with[value]);
      }
    } else {
      add(everything);
    }
    for (const size_t j : near) {
      if (!is_apart(all[i], all[j])) {
        overlaps[i].push_back(j);
        overlaps[j].push_back(i);
      }
    }
  }
  return overlaps;
}

}  // namespace specdec
