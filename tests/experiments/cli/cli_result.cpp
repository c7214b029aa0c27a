#include "tests/experiments/cli/cli_result.h"

#include <sstream>

namespace specdec {

CliResult cli(const std::vector<std::string>& arguments, const Components& components) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = run_cli(arguments, components, out, err);
  return {code, out.str(), err.str()};
}

CliResult grammar_cli(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "grammar");
  arguments.insert(arguments.end(), {"--tokenizer", kShippedTokenizer, "--quiet"});
  return cli(arguments);
}

}  // namespace specdec
