#include "core/error.h"

namespace specdec {

void require_config(bool valid, std::string_view message) {
  if (!valid) {
    throw ConfigError(std::string(message));
  }
}

void throw_internal_error(const char* condition, const char* file, int line,
                          fmt::string_view message, fmt::format_args values) {
  throw InternalError(
      fmt::format("{} [{}:{}: {}]", fmt::vformat(message, values), file, line, condition));
}

}  // namespace specdec
