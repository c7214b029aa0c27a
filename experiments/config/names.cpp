#include "experiments/config/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/edit_distance.h"

namespace specdec {
std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  if (name.size() > 64) {
    return "";
  }
  size_t best_distance = std::max<size_t>(2, name.size() / 2);
  for (const auto& candidate : known) {
    const bool is_part = name.size() >= 4 && candidate.find(name) != std::string::npos;
    const size_t distance = is_part ? 1 : edit_distance(name, candidate);
    if (distance < best_distance || (distance == best_distance && best.empty())) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string misspelled_name(std::string_view name, const std::vector<std::string>& known) {
  const auto is_near = [&](const std::string& other) {
    return name.size() >= 5 && name.size() <= 64 && edit_distance(name, other) <= 2;
  };
  const auto found = std::find_if(known.begin(), known.end(), is_near);
  return found == known.end() ? "" : *found;
}

std::string known_names_text(std::string_view name, const std::vector<std::string>& known) {
  const auto near = nearest_name(name, known);
  return near.empty() ? fmt::format("; known: {}", join_names(known))
                      : fmt::format("; did you mean '{}'? Known: {}", near, join_names(known));
}

std::string join_names(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace specdec
