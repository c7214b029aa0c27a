// The program `specdec`. Grammars need no LibTorch, whose loading takes 0.2 s and 120 MB: all other
// commands are those of specdec-models, the program beside this one.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "experiments/grammar/commands_grammar.h"
#include "experiments/terminal/command_line.h"

namespace {

/// Ctrl-C while the other program loads LibTorch waits until begin_program looks after it there:
/// the mask is inherited.
void hold_interrupts() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments = specdec::begin_program(argc, argv);
  if (specdec::command_name(arguments) == "grammar") {
    return specdec::run_grammar_cli(arguments, std::cout, std::cerr);
  }
  std::error_code unknown;
  std::filesystem::path models = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (unknown) {  // no /proc: where it was called, or the PATH
    models = argc > 0 ? argv[0] : "";
  }
  models.replace_filename("specdec-models");
  hold_interrupts();
  ::execvp(models.c_str(), argv);
  std::cerr << "error: " << models.string() << ": " << std::strerror(errno)
            << ". It belongs beside specdec: build or install both.\n";
  return 2;
}
