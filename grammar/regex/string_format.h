#pragma once
#include <optional>
#include <string_view>

#include "grammar/regex/regex.h"

namespace specdec {

/// The language of one of JSON Schema's named string formats (2020-12, section 7.3), exactly as its
/// RFC has it (leap years, leap seconds as RFC 3339 allows them, IPv6 forms, ...), but a part of it
/// for host names with A-labels, international ones and mailboxes (string_format_names.h), and for
/// regular expressions (regex_format.h): what is accepted is always valid. Nothing when the name is
/// not a format of the specification.
std::optional<RegexId> string_format(RegexStore& store, std::string_view name);

}  // namespace specdec
