#include "experiments/cli.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <sstream>

#include "core/error.h"
#include "experiments/commands.h"
#include "experiments/interrupt.h"

namespace specdec {
namespace {

constexpr int kBug = 1;
constexpr int kUserError = 2;
constexpr int kInterrupted = 130;

constexpr const char* kVersion = "specdec 0.1.0";
constexpr const char* kDescription =
    "Speculative decoding of Gemma models: experiments from YAML, and their parts one by one.";
constexpr const char* kFooter =
    "Examples:\n"
    "  specdec run configs/quickstart.yaml\n"
    "  specdec run configs/quickstart.yaml --set max_new_tokens=64 --out runs/short\n"
    "  specdec check configs/quickstart.yaml\n"
    "  specdec list\n"
    "  specdec certify\n"
    "  specdec generate models/target --prompt \"To be, or\" --temperature 0.8\n"
    "\n"
    "Results go to standard output, logs to standard error. Exit codes: 0 done, 2 an error that\n"
    "you can fix, 1 a bug in specdec (of certify: a broken promise), 130 interrupted.";

void add_global_flags(CLI::App& app, GlobalFlags& flags) {
  app.set_version_flag("--version", kVersion);
  app.add_option("--device", flags.device, "cpu, cuda or cuda:N (default: the config's, or cpu)");
  app.add_option("--dtype", flags.dtype,
                 "float32, float64, bfloat16, float16: what weights are converted to (default: as "
                 "stored)")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16", "float16"}));
  app.add_option("--threads", flags.threads, "CPU threads to compute with (default: LibTorch's)")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--quiet", flags.quiet, "no progress and no logs");
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

int dispatch(const std::vector<std::string>& arguments, CommandContext& context) {
  CLI::App app(kDescription, "specdec");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();  // global flags after the command's name
  add_global_flags(app, context.flags);
  add_run_command(app, context);
  add_check_command(app, context);
  add_list_command(app, context);
  add_certify_command(app, context);
  add_generate_command(app, context);
  add_logits_command(app, context);
  add_inspect_command(app, context);
  add_profile_command(app, context);
  add_score_command(app, context);
  add_simulate_command(app, context);
  add_import_command(app, context);
  add_train_command(app, context);
  add_grammar_command(app, context);
  context.command_line = "specdec";
  for (const auto& argument : arguments) {
    context.command_line += " " + quote_word(argument);
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error, context.out, context.err);
    return code == 0 ? 0 : kUserError;
  }
  SPECDEC_CHECK(context.action != nullptr, "a command set no action");
  if (!context.flags.device.empty()) {
    (void)parse_device(context.flags.device);
  }
  context.apply_threads();
  return context.action();
}

int report_error(std::ostream& err, const std::string& message) {
  err << "error: " << message << "\n";
  return kUserError;
}

int report_bug(std::ostream& err, const std::string& message) {
  err << "bug: " << message << "\nThis is a mistake in specdec; please report it.\n";
  return kBug;
}

int run_guarded(const std::vector<std::string>& arguments, CommandContext& context) {
  std::ostream& err = context.err;
  try {
    const int code = dispatch(arguments, context);
    context.out.flush();
    if (!context.out) {
      return report_error(err, "standard output cannot be written (closed, or the disk is full)");
    }
    return code;
  } catch (const Error& error) {
    return report_error(err, error.what());
  } catch (const Interrupted&) {
    err << "interrupted\n";
    return kInterrupted;
  } catch (const InternalError& error) {
    return report_bug(err, error.what());
  } catch (const std::bad_alloc&) {
    return report_error(err, "out of memory; try a smaller model.max_length or model");
  } catch (const c10::OutOfMemoryError& error) {
    return report_error(err, "out of device memory; try a smaller model.max_length or model: " +
                                 std::string(error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return report_bug(err, error.what());
  } catch (const std::exception& error) {
    return report_bug(err, error.what());
  }
}

}  // namespace

ModelOptions CommandContext::model_options() const {
  return {.dtype = flags.dtype, .device = flags.device.empty() ? "cpu" : flags.device};
}

std::vector<std::string> CommandContext::overrides() const {
  std::vector<std::string> texts;
  if (!flags.device.empty()) {
    texts.push_back("model.device=" + flags.device);
  }
  if (!flags.dtype.empty()) {
    texts.push_back("model.dtype=" + flags.dtype);
  }
  if (flags.threads > 0) {
    texts.push_back(fmt::format("threads={}", flags.threads));
  }
  return texts;
}

void CommandContext::apply_threads() const {
  if (flags.threads > 0) {
    at::set_num_threads(static_cast<int>(flags.threads));
  }
}

int run_cli(const std::vector<std::string>& arguments, const Components& components,
            std::ostream& out, std::ostream& err) {
  CommandContext context{components, out, err};
  return run_guarded(arguments, context);
}

int run_cli(int argc, char** argv, const Components& components) {
  // A closed pipe is a failed write, which is reported, instead of a silent death.
  (void)std::signal(SIGPIPE, SIG_IGN);
  return run_cli(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), components,
                 std::cout, std::cerr);
}

}  // namespace specdec
