#pragma once
#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace specdec {

/// Flags that every command takes, before or after its name.
struct GlobalFlags {
  std::string device;  ///< "" = not given
  std::string dtype;
  std::string activations = {};
  std::string kv_dtype = {};
  std::string cache = {};
  std::string memory_limit = {};
  std::string layer_file = {};
  int64_t threads = 0;
  std::optional<int64_t> cuda_graphs = {};
  std::optional<int64_t> prefill_graphs = {};
  std::string prefill_products = {};
  bool quiet = false;
  bool no_machine_profile = false;
};

/// What a command works with that needs no model. A command adds its options to the app and sets
/// `action`, which is called once everything is parsed and returns the exit code.
struct CommandLine {
  std::ostream& out;  ///< results
  std::ostream& err;  ///< logs
  GlobalFlags flags = {};
  std::function<int()> action = {};
  std::string command_line = {};
};

/// Gives an app its texts and the global flags; commands come next.
void begin_commands(CLI::App& app, CommandLine& context);
/// --seed, a whole number that 64 bits hold.
void add_seed_option(CLI::App& command, uint64_t& seed);
/// Reads the arguments, which sets `action`; an exit code when there is nothing left to do.
std::optional<int> parse_commands(CLI::App& app, const std::vector<std::string>& arguments,
                                  CommandLine& context);
/// The exit code of `run`, or of the error that it ends with, which is written.
int run_guarded(CommandLine& context, const std::function<int()>& run);
/// `argv` without the program's name. From now on a closed pipe is a failed write, which is
/// reported, instead of a silent death.
std::vector<std::string> begin_program(int argc, char** argv);

/// The command that the arguments name, after global flags; "" = none.
std::string command_name(const std::vector<std::string>& arguments);

}  // namespace specdec
