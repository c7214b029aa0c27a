#pragma once
#include <string>
#include <vector>

#include "experiments/cli/cli.h"

namespace specdec {

/// What a command left behind.
struct CliResult {
  int code = 0;
  std::string out;
  std::string err;
};

CliResult cli(const std::vector<std::string>& arguments,
              const Components& components = builtin_components());

/// The folder of the shipped target.
inline const std::string kShippedTokenizer = SPECDEC_SOURCE_DIR "/models/target";

/// `specdec grammar` with the shipped target's tokenizer.
CliResult grammar_cli(std::vector<std::string> arguments);

}  // namespace specdec
