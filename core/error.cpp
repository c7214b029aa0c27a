#include "core/error.h"

namespace specdec {

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(fmt::format("{} [{}:{}: {}]", message, file, line, condition));
}

}  // namespace specdec
