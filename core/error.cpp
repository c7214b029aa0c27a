#include "core/error.h"

namespace specdec {

void require_config(bool valid, std::string_view message) {
  if (!valid) {
    throw ConfigError(std::string(message));
  }
}

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(fmt::format("{} [{}:{}: {}]", message, file, line, condition));
}

}  // namespace specdec
