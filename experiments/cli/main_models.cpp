#include "experiments/cli/cli.h"

int main(int argc, char** argv) {
  return specdec::run_cli(argc, argv, specdec::builtin_components());
}
