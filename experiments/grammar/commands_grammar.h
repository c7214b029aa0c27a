#pragma once
#include <CLI/App.hpp>
#include <iosfwd>
#include <string>
#include <vector>

#include "experiments/terminal/command_line.h"

namespace specdec {

void add_grammar_command(CLI::App& app, CommandLine& context);
/// The command line as far as it needs no LibTorch: `specdec grammar`.
int run_grammar_cli(const std::vector<std::string>& arguments, std::ostream& out,
                    std::ostream& err);

}  // namespace specdec
