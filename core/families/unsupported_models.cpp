#include "core/families/unsupported_models.h"

#include <fmt/format.h>

#include <utility>

namespace specdec {

std::string unsupported_family(const std::string& type) {
  constexpr std::pair<const char*, const char*> kFamilies[] = {{"gemma3n", "Gemma 3n"},
                                                               {"gemma4", "Gemma 4"}};
  for (const auto& [prefix, name] : kFamilies) {
    if (type.rfind(prefix, 0) == 0) {
      return fmt::format(" ({}, a family that is not supported)", name);
    }
  }
  return "";
}

}  // namespace specdec
