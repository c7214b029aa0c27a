#pragma once
#include <CLI/App.hpp>

#include "experiments/terminal/command_line.h"

namespace specdec {

/// Adds `test` to the command `grammar`.
void add_grammar_test(CLI::App& grammar, CommandLine& context);

}  // namespace specdec
