#pragma once
#include <exception>
#include <string>

namespace specdec {

/// The message of the `Expected` that a call throws; "no error" when it throws nothing. Any other
/// exception passes through and fails the test.
template <class Expected, class Call>
std::string error_message(const Call& call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace specdec
