#pragma once
#include <string_view>
#include <vector>

#include "core/jinja/syntax.h"

namespace specdec {

/// The statements of a template. Throws Error that begins with the line: what is no Jinja, and tags
/// that are not supported, by name.
std::vector<JinjaStatement> parse_jinja(std::string_view source);

}  // namespace specdec
