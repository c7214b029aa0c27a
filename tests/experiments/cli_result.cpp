#include "tests/experiments/cli_result.h"

#include <sstream>

namespace specdec {

CliResult cli(const std::vector<std::string>& arguments, const Components& components) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = run_cli(arguments, components, out, err);
  return {code, out.str(), err.str()};
}

}  // namespace specdec
