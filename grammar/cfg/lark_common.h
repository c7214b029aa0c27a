#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace specdec {

/// True for NAME and _NAME, false for name and _name; nothing when it is neither.
std::optional<bool> is_lark_terminal(std::string_view name);

/// The pattern of a terminal that Lark grammars import from `common`.
std::optional<std::string_view> lark_common_pattern(std::string_view name);

/// All such names, for errors.
std::string lark_common_names();

}  // namespace specdec
