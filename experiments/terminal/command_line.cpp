#include "experiments/terminal/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <ostream>
#include <string_view>

#include "core/error.h"
#include "experiments/config/names.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

constexpr int kBug = 1;
constexpr int kUserError = 2;
constexpr int kInterrupted = 130;

constexpr const char* kVersion = "specdec 0.1.0";
constexpr const char* kDescription =
    "Speculative and constrained decoding of Gemma, Llama and Qwen models: YAML experiments, and "
    "tools for their "
    "parts.";
constexpr const char* kFooter =
    "Examples:\n"
    "  specdec run configs/pair.yaml\n"
    "  specdec run configs/pair.yaml --set max_new_tokens=64 --out runs/short\n"
    "  specdec check configs/pair.yaml\n"
    "  specdec list\n"
    "  specdec certify\n"
    "  specdec generate models/target --prompt \"To be, or\" --temperature 0.8\n"
    "\n"
    "--json [FILE] of a command writes its result as JSON: to FILE, beside the usual text, or to\n"
    "standard output instead of it (no FILE, or -).\n"
    "Results go to standard output, logs to standard error. Exit codes: 0 done, 2 an error that\n"
    "you can fix, 1 a bug in specdec (of certify: a broken promise), 130 interrupted.";

void add_global_flags(CLI::App& app, GlobalFlags& flags) {
  app.set_version_flag("--version", kVersion);
  app.add_option("--device", flags.device,
                 "cpu, cuda, cuda:N or mps (default: the config's, or cpu)");
  app.add_option("--dtype", flags.dtype, "convert the weights to this type (default: as stored)")
      ->check(CLI::IsMember({"stored", "float32", "float64", "bfloat16", "float16", "int8"}));
  app.add_option("--activations", flags.activations,
                 "round the inputs of products with weights in blocks: faster, with an error that "
                 "'score' states (default: float32)")
      ->check(CLI::IsMember({"float32", "int8"}));
  app.add_option("--kv-dtype", flags.kv_dtype,
                 "type of the key/value cache (default: float32; float64 where the weights are)")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--cache", flags.cache,
                 "key/value cache: a type of 'specdec list cache', or with options a map such as "
                 "'{type: paged, megabytes: 64}' (default: paged)")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return text.find_first_not_of(" \t") == std::string::npos
                       ? "is empty: name a type of 'specdec list cache', or leave --cache out"
                       : std::string();
          },
          ""));
  app.add_option("--memory-limit", flags.memory_limit,
                 "most memory of the model's weights, the GPU's with --device cuda, such as 8GB, "
                 "0.5GB or 512MiB: layers that do not fit are read from disk in each forward "
                 "(default: no limit)");
  app.add_option("--layer-file", flags.layer_file,
                 "where these layers are written, packed (default: in ~/.cache/specdec)");
  app.add_option("--threads", flags.threads,
                 "CPU threads (default: one or LibTorch's number, whichever is faster when a model "
                 "is loaded)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--cuda-graphs", flags.cuda_graphs,
                 "forwards of up to 64 tokens that are kept as CUDA graphs, at most; 0 = none "
                 "(default: 32)")
      ->check(CLI::Range(0, 4096));
  app.add_option("--prefill-graphs", flags.prefill_graphs,
                 "the same of longer forwards, the pieces of prompts (default: 0)")
      ->check(CLI::Range(0, 4096));
  app.add_option("--prefill-products", flags.prefill_products,
                 "exact, or library (cuda): cuBLAS multiplies pieces of prompts of 256 tokens or "
                 "more; texts may differ by rounding, not between lossless strategies (default: "
                 "exact)")
      ->check(CLI::IsMember({"exact", "library"}));
  app.add_flag("--no-machine-profile", flags.no_machine_profile,
               "generate, chat and run take no defaults from the model's specdec-profile.yaml");
  app.add_flag("--quiet", flags.quiet, "no progress and no logs");
}

/// A command's help ends with the names of the options that all commands have.
class CommandHelp final : public CLI::Formatter {
 public:
  std::string make_footer(const CLI::App* app) const override {
    const CLI::App* program = app;
    while (program->get_parent() != nullptr) {
      program = program->get_parent();
    }
    const std::string footer = CLI::Formatter::make_footer(app);
    if (program == app) {
      return footer;
    }
    std::vector<std::string> names;
    for (const CLI::Option* option : program->get_options()) {
      if (option != program->get_help_ptr() && option != program->get_version_ptr()) {
        names.push_back(option->get_name());
      }
    }
    return fmt::format("Options of all commands, see 'specdec --help': {}\n{}{}", join_names(names),
                       footer.empty() ? "" : "\n", footer);
  }
};

volatile std::sig_atomic_t errors_on_terminal = 0;  // a signal handler can reach nothing but that

/// Ctrl-C where no InterruptGuard looks after it: nothing is half done there, so the program ends
/// at once, as it does elsewhere. Only calls that a signal handler may make.
void end_at_interrupt(int) {
  // On a terminal after what it shows of Ctrl-C, or behind a prompt.
  const std::string_view line = errors_on_terminal != 0 ? "\ninterrupted\n" : "interrupted\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(kInterrupted);
}

/// Shell quoting where a word needs it, so that the command can be pasted.
std::string quote_word(const std::string& word) {
  const bool plain =
      !word.empty() && word.find_first_of(" \t\n'\"\\$`*?[]{}()<>|&;#~!") == std::string::npos;
  if (plain) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

int report_error(std::ostream& err, const std::string& message) {
  err << "error: " << message << "\n";
  return kUserError;
}

/// A call of the file system that failed where nobody expected it: permissions, as a rule.
std::string file_error_text(const std::filesystem::filesystem_error& error) {
  return fmt::format("{}: {}. Check that it exists and that you may read and write it.",
                     error.path1().string(), error.code().message());
}

int report_bug(std::ostream& err, const std::string& message) {
  err << "bug: " << message << "\nThis is a mistake in specdec; please report it.\n";
  return kBug;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

/// Refuses a word in a command's place that names none; the parser would only say that one is
/// required.
void refuse_unknown_command(const CLI::App& app, const std::string& word) {
  const auto known = command_names(app);
  if (!word.empty() && word.front() != '-' &&
      std::find(known.begin(), known.end(), word) == known.end()) {
    throw ConfigError(fmt::format("unknown command '{}'{}. See 'specdec --help'.", word,
                                  known_names_text(word, known)));
  }
}

/// Refuses unknown commands, also of a command that has commands of its own, as grammar has.
void refuse_unknown_commands(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::string name = command_name(arguments);
  if (!name.empty() && name.front() == '-') {
    return;  // an unknown option in the command's place
  }
  refuse_unknown_command(app, name);
  const auto at = std::find(arguments.begin(), arguments.end(), name);
  const bool has_next = at != arguments.end() && at + 1 != arguments.end();
  if (!name.empty() && has_next && app.get_subcommand(name)->get_require_subcommand_min() > 0) {
    refuse_unknown_command(*app.get_subcommand(name), *(at + 1));
  }
}

/// Names, without dashes, of the options that a command takes: its own and those of all commands.
std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        names.push_back(name);
      }
    }
  }
  return names;
}

/// Throws ConfigError for the first word that looks like an option, and is none of the command.
void refuse_unknown_option(const CLI::App& app) {
  const CLI::App* command = &app;
  std::string path;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += command->get_name() + " ";
  }
  for (const std::string& word : app.remaining(true)) {
    const size_t begin = word.find_first_not_of('-');
    if (begin == 0 || begin == std::string::npos || (word[begin] >= '0' && word[begin] <= '9')) {
      continue;  // no option, or a number
    }
    const std::string name = word.substr(0, word.find('='));
    const std::string near = nearest_name(name.substr(begin), option_names(*command));
    if (begin == 2 && near == name.substr(begin)) {
      throw ConfigError(fmt::format("{}: this option belongs behind the command: specdec {}... {}",
                                    name, path, name));
    }
    throw ConfigError(fmt::format("{}: unknown option{} See 'specdec {}--help'.", name,
                                  near.empty() ? "." : fmt::format("; did you mean --{}?", near),
                                  path));
  }
}

}  // namespace

void begin_commands(CLI::App& app, CommandLine& context) {
  app.description(kDescription);
  app.name("specdec");
  app.footer(kFooter);
  app.formatter(std::make_shared<CommandHelp>());
  app.require_subcommand(1);
  app.fallthrough();  // global flags after the command's name
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return "error: " + CLI::FailureMessage::simple(failed, error);
  });
  add_global_flags(app, context.flags);
}

void add_seed_option(CLI::App& command, uint64_t& seed) {
  const auto check = [](const std::string& text) {
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, code] = std::from_chars(text.data(), end, value);
    return code == std::errc() && rest == end
               ? std::string()
               : fmt::format("'{}' should be a whole number from 0 to 2^64 - 1", text);
  };
  command.add_option("--seed", seed, "random seed")
      ->check(CLI::Validator(check, ""))
      ->capture_default_str();
}

std::optional<int> parse_commands(CLI::App& app, const std::vector<std::string>& arguments,
                                  CommandLine& context) {
  context.command_line = "specdec";
  for (const auto& argument : arguments) {
    context.command_line += " " + quote_word(argument);
  }
  refuse_unknown_commands(app, arguments);
  try {
    parse_with_json(app, arguments);
  } catch (const CLI::ExtrasError& error) {
    refuse_unknown_option(app);
    return app.exit(error, context.out, context.err) == 0 ? 0 : kUserError;
  } catch (const CLI::ParseError& error) {
    return app.exit(error, context.out, context.err) == 0 ? 0 : kUserError;
  }
  SPECDEC_CHECK(context.action != nullptr, "a command set no action");
  return std::nullopt;
}

int run_guarded(CommandLine& context, const std::function<int()>& run) {
  std::ostream& err = context.err;
  try {
    const int code = run();
    context.out.flush();
    if (!context.out) {
      return report_error(err, "standard output cannot be written (closed, or the disk is full)");
    }
    return code;
  } catch (const Error& error) {
    return report_error(err, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return report_error(err, file_error_text(error));
  } catch (const Interrupted&) {
    err << "interrupted\n";
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    return report_error(err, "out of memory; try a smaller model.max_length or model");
  } catch (const std::exception& error) {
    return report_bug(err, error.what());
  }
}

std::vector<std::string> begin_program(int argc, char** argv) {
  (void)std::signal(SIGPIPE, SIG_IGN);
  errors_on_terminal = ::isatty(STDERR_FILENO);
  if (std::signal(SIGINT, end_at_interrupt) == SIG_IGN) {
    (void)std::signal(SIGINT, SIG_IGN);  // a job in a script's background
  }
  sigset_t held;  // while the program was loaded
  ::sigemptyset(&held);
  ::sigaddset(&held, SIGINT);
  ::sigprocmask(SIG_UNBLOCK, &held, nullptr);
  return {argv + std::min(argc, 1), argv + argc};
}

std::string command_name(const std::vector<std::string>& arguments) {
  CLI::App app;
  GlobalFlags flags;
  add_global_flags(app, flags);
  app.prefix_command();
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError&) {  // help too: whoever runs the command says it
    return "";
  }
  const std::vector<std::string> rest = app.remaining();
  return rest.empty() ? "" : rest.front();
}

}  // namespace specdec
