#pragma once
#include <string>

namespace specdec {

/// RFC 3986, section 5.2: a reference seen from a base.
std::string resolve_uri(const std::string& base, const std::string& reference);

}  // namespace specdec
