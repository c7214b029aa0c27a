#pragma once
#include <string>
#include <string_view>

namespace specdec {

/// RFC 3986, section 5.2: a reference seen from a base.
std::string resolve_uri(const std::string& base, const std::string& reference);

/// What stands before the '#'.
std::string without_fragment(std::string_view uri);

/// "a b" for "a%20b"; a '%' without two digits stays.
std::string percent_decode(std::string_view text);

}  // namespace specdec
