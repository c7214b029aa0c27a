#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "experiments/components/components.h"

namespace specdec {

/// The whole command line with these components; returns the exit code: 0 done, 2 an error that the
/// user can fix (also wrong usage), 1 a bug, 130 interrupted. A project of your own adds to
/// builtin_components() and calls this from main.
int run_cli(int argc, char** argv, const Components& components);

/// Runs a command on streams: results on `out`, logs and errors on `err`. `arguments` begins after
/// the program's name.
int run_cli(const std::vector<std::string>& arguments, const Components& components,
            std::ostream& out, std::ostream& err);

}  // namespace specdec
