#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace specdec {

/// Something that a user can fix. The message says what is wrong, where, and how to fix it; the
/// command line prints it to stderr and exits with code 2.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A mistake in an experiment or training config, a prompts file or the command line.
class ConfigError final : public Error {
 public:
  using Error::Error;
};
/// Throws ConfigError with `message` unless `valid`.
void require_config(bool valid, std::string_view message);

/// A checkpoint that is missing, damaged, or not what its config says.
class WeightsError final : public Error {
 public:
  using Error::Error;
};

/// A grammar or schema that cannot be compiled.
class GrammarError final : public Error {
 public:
  using Error::Error;
};

/// A broken precondition: a bug in the program that calls, not in a user's input.
class InternalError final : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws InternalError; the body of SPECDEC_CHECK.
[[noreturn]] void fail_check(const char* condition, const char* file, int line,
                             const std::string& message);

}  // namespace specdec

/// Checks a precondition in every build type; the message is a {fmt} format with its arguments.
#define SPECDEC_CHECK(condition, ...)                                                    \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      ::specdec::fail_check(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
    }                                                                                    \
  } while (false)
