#pragma once
#include <optional>
#include <string_view>

#include "grammar/regex/regex.h"

namespace specdec {

/// The set of `\p{name}`: a general category, `Script=`, `Script_Extensions=` or a binary property,
/// by ICU's data and its loose matching of names. Nothing when there is no such property.
std::optional<CodePoints> unicode_property(std::string_view name);

/// Adds all code points that differ from one in the set by case only (simple case folding).
CodePoints close_over_case(const CodePoints& points);

/// Adds all code points that re.IGNORECASE of Python takes for one in the set: i also matches the
/// Turkish letters without and with a dot.
CodePoints close_over_python_case(const CodePoints& points);

/// Adds the ASCII letters that differ from one in the set by case only.
CodePoints close_over_ascii_case(const CodePoints& points);

}  // namespace specdec
