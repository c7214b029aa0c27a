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

/// The same as Python's re.IGNORECASE has it: i also matches the Turkish letters without and with a
/// dot.
CodePoints close_over_python_case(const CodePoints& points);

/// The same for ASCII letters only.
CodePoints close_over_ascii_case(const CodePoints& points);

}  // namespace specdec
