#include "experiments/config/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/edit_distance.h"

namespace specdec {
namespace {

std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& letter : lower) {
    letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return lower;
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  if (name.size() > 64) {
    return "";
  }
  size_t best_distance = std::max<size_t>(2, name.size() / 2);
  const std::string wanted = lower_case(name);
  for (const auto& candidate : known) {
    const size_t at = lower_case(candidate).find(wanted);
    const bool is_part =
        (wanted.size() >= 4 && at != std::string::npos) || (wanted.size() == 3 && at == 0);
    const size_t distance = is_part ? 1 : edit_distance(wanted, lower_case(candidate));
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

std::string join_alternatives(const std::vector<std::string>& names) {
  return names.size() < 2 ? join_names(names)
                          : fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "),
                                        names.back());
}

}  // namespace specdec
