#include "experiments/terminal/json_option.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <ostream>
#include <sstream>
#include <system_error>

#include "core/error.h"
#include "experiments/terminal/command_line.h"

namespace specdec {
namespace {

constexpr const char* kFlag = "--json";
constexpr const char* kStandardOutput = "-";

void parse_arguments(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());
  app.parse(std::move(arguments));
}

bool takes_any_number(const CLI::App& app, const std::vector<std::string>& arguments) {
  const auto name = command_name(arguments);
  const auto commands =
      app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
  return std::any_of(commands.begin(), commands.end(), [](const CLI::App* command) {
    const auto many = command->get_options([](const CLI::Option* option) {
      return option->get_positional() && option->get_items_expected_max() > 1;
    });
    return !many.empty();
  });
}

/// The arguments with `--json WORD` at `at` as `--json=WORD`.
std::vector<std::string> with_file(std::vector<std::string> arguments, size_t at) {
  arguments[at] = fmt::format("{}={}", kFlag, arguments[at + 1]);
  arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  return arguments;
}

/// Place of the first `--json` that is a word of its own; none = their number.
size_t find_flag(const std::vector<std::string>& arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  const auto found = std::find(arguments.begin(), end, kFlag);
  return static_cast<size_t>((found == end ? arguments.end() : found) - arguments.begin());
}

}  // namespace

void add_json_option(CLI::App& command, JsonOption& json, const std::string& what) {
  command
      .add_option(kFlag, json.file,
                  what + ": to FILE too, or to standard output instead of the text (no FILE, or -)")
      ->type_name("[FILE]");
}

void parse_with_json(CLI::App& app, const std::vector<std::string>& arguments) {
  const size_t at = find_flag(arguments);
  const bool is_last = at + 1 >= arguments.size();
  const std::string next = is_last ? std::string() : arguments[at + 1];
  if (std::count(arguments.begin(), arguments.end(), std::string(kFlag) + "=") > 0 ||
      (!is_last && next.empty())) {
    throw ConfigError("--json: the name of the file is empty; leave it out for standard output");
  }
  if (at == arguments.size()) {
    return parse_arguments(app, arguments);
  }
  auto without = arguments;
  without[at] = fmt::format("{}={}", kFlag, kStandardOutput);
  const bool is_option = next.size() > 1 && next.starts_with('-');
  const bool is_name =
      takes_any_number(app, arguments) && next != kStandardOutput && !next.ends_with(".json");
  if (is_last || is_option || is_name) {
    return parse_arguments(app, without);
  }
  try {
    parse_arguments(app, with_file(arguments, at));
  } catch (const CLI::RequiredError&) {
    parse_arguments(app, without);
  }
}

JsonOutput::JsonOutput(const JsonOption& option, std::ostream& out)
    : out_(out), wanted_(!option.file.empty()), name_(option.file) {
  if (!wanted_ || name_ == kStandardOutput) {
    return;
  }
  std::error_code unknown;
  const auto status = std::filesystem::status(name_, unknown);
  if (std::filesystem::is_directory(status)) {
    throw ConfigError(fmt::format("--json: {} is a folder; give a file's name", name_));
  }
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) {
    file_.emplace(name_);
    return;
  }
  device_.open(name_);
  if (!device_.is_open()) {
    throw ConfigError(fmt::format("--json: {} cannot be written", name_));
  }
}

void JsonOutput::write(std::string_view text) {
  if (file_) {
    file_->write(text);
  } else if (wanted_) {
    (device_.is_open() ? device_ : out_) << text;
  }
}

void JsonOutput::commit() {
  if (file_) {
    file_->commit();
  }
  if (device_.is_open() && !device_.flush()) {
    throw Error(fmt::format("--json: {} cannot be written", name_));
  }
}

void JsonOutput::write_result(const Print& print_text, const Print& print_json) {
  if (wanted_) {
    std::ostringstream json;
    print_json(json);
    write(json.str());
    commit();
  }
  if (!replaces_text()) {
    print_text(out_);
  }
}

}  // namespace specdec
