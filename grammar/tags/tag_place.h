#pragma once
#include <fmt/format.h>

#include <string>

#include "core/error.h"

namespace specdec {

/// Calls it; errors begin with the place.
template <class Call>
auto at_place(const std::string& place, const Call& call) {
  try {
    return call();
  } catch (const GrammarError& error) {
    if (place.empty()) {
      throw;
    }
    throw GrammarError(
        fmt::format("{}{}: {}", place.starts_with('/') ? "#" : "", place, error.what()));
  }
}

}  // namespace specdec
