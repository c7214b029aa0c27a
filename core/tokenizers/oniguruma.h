#pragma once
#include <string>
#include <string_view>

namespace specdec {

/// An expression of Oniguruma, which tokenizer.json's are read by, as one of PCRE2 (UTF and UCP)
/// that matches the same: \s, \w, \b, \h, POSIX brackets, properties, classes with && and classes
/// in them, ^ and $ at line ends, {,n}. Throws Error that names what is not supported and the byte
/// at which it stands.
std::string pcre2_of_oniguruma(std::string_view pattern);

}  // namespace specdec
