#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace specdec {

/// One of the values that an option may have, by the name that YAML uses.
template <class T>
struct NamedValue {
  const char* name;
  T value;
};

/// Their names, in their order.
template <class Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto& known : values) {
    names.emplace_back(known.name);
  }
  return names;
}

/// The name of a value that is one of them.
template <class T>
const char* name_of(std::span<const NamedValue<T>> values, const T& value) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [&](const NamedValue<T>& known) { return known.value == value; });
  SPECDEC_CHECK(found != values.end(), "an option's value that has no name");
  return found->name;
}

}  // namespace specdec
