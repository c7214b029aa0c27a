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

/// Throws ConfigError for a file that is there and begins as no JSON does: a model's weights or a
/// text that were named by mistake.
void refuse_other_file(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  char first = '{';
  if (stream >> first && first != '{' && first != '[') {
    throw ConfigError(fmt::format(
        "--json: {} is there and holds no JSON, so it is not overwritten: name another file",
        file));
  }
}

/// Throws ConfigError where --json=FILE and another word name the same file.
void refuse_named_twice(const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  const auto value_of = [](const std::string& word) {
    return word.starts_with("--") ? word.substr(std::min(word.find('='), word.size() - 1) + 1)
                                  : word;
  };
  const auto flag = std::find_if(arguments.begin(), arguments.end(), [](const std::string& word) {
    return word.starts_with(std::string(kFlag) + "=");
  });
  std::error_code unknown;
  if (flag == arguments.end() || !fs::is_regular_file(value_of(*flag), unknown)) {
    return;
  }
  const std::string file = value_of(*flag);
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    if (word != flag && fs::equivalent(value_of(*word), file, unknown)) {
      throw ConfigError(fmt::format(
          "--json: {} is named by '{}' too, and would be overwritten: name another file", file,
          *word));
    }
  }
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
    refuse_named_twice(arguments);
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
  const auto with = with_file(arguments, at);
  try {
    parse_arguments(app, with);
  } catch (const CLI::RequiredError&) {
    return parse_arguments(app, without);
  }
  refuse_named_twice(with);
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
    refuse_other_file(name_);
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
