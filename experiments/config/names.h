#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace specdec {

/// The known name nearest to `name` by edit distance; "" when none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

/// The known name that `name` was probably meant to be, being at most two letters away from it; ""
/// when there is none, and for words of less than five letters, which are near too many others.
std::string misspelled_name(std::string_view name, const std::vector<std::string>& known);

/// What follows a name that is not known: "; did you mean 'eagle'? Known: eagle, mtp", or "; known:
/// eagle, mtp" when none is near.
std::string known_names_text(std::string_view name, const std::vector<std::string>& known);

/// "a, b, c"
std::string join_names(const std::vector<std::string>& names);
/// "a, b or c"
std::string join_alternatives(const std::vector<std::string>& names);

}  // namespace specdec
