#pragma once
#include <CLI/App.hpp>
#include <fstream>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/atomic_file.h"

namespace specdec {

/// `--json [FILE]`, which means the same for every command: with a FILE the JSON goes to it, and
/// the command prints what it always prints; without one, or with `-`, the JSON is all that goes to
/// standard output.
struct JsonOption {
  std::string file;  ///< "-" = standard output; "" = --json was not given
};

/// `what`: "one JSON object", for the help.
void add_json_option(CLI::App& command, JsonOption& json, const std::string& what);

/// Says what the word after `--json` is, for CLI11 would take every one for the FILE: the next
/// positional argument where the command lacks one without it (`inspect --json models/target`). Of
/// a command that takes any number of them, a FILE is what ends in .json. `parse` parses arguments
/// and may throw. Throws ConfigError for an empty name, and for a file that another argument names:
/// what a command reads is not overwritten.
void parse_with_json(CLI::App& app, const std::vector<std::string>& arguments);

/// Destination of a command's JSON: standard output, a file, or none.
class JsonOutput {
 public:
  /// Opens the file, so that a name that cannot be written is an error before any work. Throws
  /// ConfigError for a file that is there and holds something else than JSON.
  JsonOutput(const JsonOption& option, std::ostream& out);

  bool is_wanted() const { return wanted_; }
  /// True when the JSON is all that standard output gets.
  bool replaces_text() const { return wanted_ && !file_ && !device_.is_open(); }
  /// Appends; nothing when no JSON is wanted.
  void write(std::string_view text);
  /// Gives the file its name; without it there is none.
  void commit();

  using Print = std::function<void(std::ostream&)>;
  /// A whole result: as JSON where it is wanted, as text unless the JSON replaces it.
  void write_result(const Print& print_text, const Print& print_json);

 private:
  std::ostream& out_;
  bool wanted_;
  std::string name_;
  std::optional<AtomicFile> file_;
  std::ofstream device_;  ///< a pipe or device, which is not replaced
};

}  // namespace specdec
