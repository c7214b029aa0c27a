#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>
#include <sstream>

#include "core/error.h"
#include "experiments/certify/certify_report.h"
#include "experiments/cli/commands.h"
#include "experiments/run/experiment.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

struct ConfigArguments {
  std::string file;
  std::vector<std::string> sets;
  std::string out;
};

void add_config_options(CLI::App& command, ConfigArguments& arguments) {
  command.add_option("FILE", arguments.file, "the experiment's YAML file")->required();
  command
      .add_option("--set", arguments.sets,
                  "key=value, the value in YAML: --set max_new_tokens=64, or in a list by index or "
                  "name: --set strategies.prompt_lookup.draft_length=8. May be repeated")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
}

ExperimentPlan load(const CommandContext& context, const ConfigArguments& arguments) {
  auto overrides = context.overrides();
  overrides.insert(overrides.end(), arguments.sets.begin(), arguments.sets.end());
  return load_experiment(arguments.file, overrides, context.components);
}

int run(const CommandContext& context, const ConfigArguments& arguments) {
  const auto plan = load(context, arguments);
  const auto out = arguments.out.empty() ? std::filesystem::path("runs") / plan.name
                                         : std::filesystem::path(arguments.out);
  const InterruptGuard guard;
  try {
    const auto report = run_experiment(
        plan, {.out = out, .quiet = context.flags.quiet, .command = context.command_line},
        context.err);
    write_table(context.out, report);
    if (!context.flags.quiet) {
      context.err << "report: " << (out / "report.html").string() << "\n";
    }
    return 0;
  } catch (const Interrupted&) {
    context.err << fmt::format("{} holds what is finished; the same command resumes:\n  {}\n",
                               out.string(), context.command_line);
    throw;
  }
}

int check(const CommandContext& context, const ConfigArguments& arguments) {
  const auto plan = load(context, arguments);
  const auto& first = plan.points.front().config;
  const auto sweep = plan.sweep_keys.empty()
                         ? std::string()
                         : fmt::format(", {} points of a sweep", plan.points.size());
  context.out << fmt::format("{}: {} strategies, {} prompts, {} repeats{}: all right\n",
                             arguments.file, first.strategies.size(), first.prompts.prompts.size(),
                             first.repeats, sweep);
  return 0;
}

template <class Entries>
void list_entries(std::ostream& out, const std::string& title, const Entries& entries,
                  bool with_promise) {
  out << title << "\n";
  for (const auto& [name, entry] : entries) {
    std::istringstream lines(entry.help);
    std::string line;
    std::getline(lines, line);
    out << fmt::format("  {:<15} {}{}\n", name, line,
                       with_promise ? " [" + promise_name(entry.promise) + "]" : "");
    while (std::getline(lines, line)) {
      out << fmt::format("  {:<15}   {}\n", "", line);
    }
  }
  out << "\n";
}

struct ListArguments {
  bool matrix = false;
  bool json = false;
};

/// Builds and runs each combination once; certify enumerates them.
int list_matrix(const CommandContext& context, bool json) {
  const InterruptGuard guard;
  const auto result =
      certify(context.components, {.seeds = 1, .enumerate = false, .quiet = context.flags.quiet},
              context.err);
  (json ? write_matrix_json : write_matrix)(context.out, result);
  return result.passed() ? 0 : 1;
}

int list(const CommandContext& context, const ListArguments& arguments) {
  if (arguments.matrix) {
    return list_matrix(context, arguments.json);
  }
  if (arguments.json) {
    throw ConfigError("--json goes with --matrix");
  }
  const auto& all = context.components;
  std::ostream& out = context.out;
  out << "Names that a config can use as 'type', with their options.\n\n";
  list_entries(out, "strategies", all.strategies.entries(), true);
  list_entries(out, "drafter (of speculative)", all.drafters.entries(), false);
  list_entries(out, "verifier (of speculative)", all.verifiers.entries(), true);
  list_entries(out, "draft_length (of speculative)", all.draft_lengths.entries(), false);
  list_entries(out, "tree (of speculative)", all.trees.entries(), false);
  out << "lossless: greedy output equals the target's, sampled output follows the target's "
         "distribution.\n"
         "lossy: the output is not the target's; a strategy with a lossy verifier is lossy.\n"
         "unverified: nothing is known; 'specdec certify' measures it.\n"
         "search: beam search, for example; the hypotheses and scores are those of plain beam "
         "search.\n"
         "prompts: one line a prompt, {\"turns\": [...]}, {\"prompt\": \"...\"} or {\"tokens\": "
         "[...]}.\n  With prompts.chat, turns follow one another in Gemma's chat format and every\n"
         "  strategy continues the first strategy's replies; without, only the first turn is "
         "run.\n";
  return 0;
}

}  // namespace

void add_run_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("run", "run an experiment; prints a table, writes a folder");
  const auto arguments = std::make_shared<ConfigArguments>();
  add_config_options(*command, *arguments);
  command->add_option("--out", arguments->out,
                      "the run folder (default: runs/NAME); an interrupted run resumes in it");
  command->footer(
      "Examples:\n"
      "  specdec run configs/quickstart.yaml\n"
      "  specdec run configs/quickstart.yaml --set prompts.limit=4 --out runs/quick");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return run(context, *arguments); };
  });
}

void add_check_command(CLI::App& app, CommandContext& context) {
  auto* command =
      app.add_subcommand("check", "check an experiment's config, prompts and models' headers");
  const auto arguments = std::make_shared<ConfigArguments>();
  add_config_options(*command, *arguments);
  command->footer(
      "Loads no weights.\n"
      "\n"
      "Keys of `model`, beside weights (a folder):\n"
      "  dtype              float32, float64, bfloat16 or float16; default: as stored\n"
      "  device             cpu (default), cuda, cuda:N\n"
      "  max_length         tokens of prompt and output; default: the config's, at most 8192\n"
      "  include_mtp        load the checkpoint's multi-token-prediction modules; default false\n"
      "  verify_consistent  insist that a token's logits do not depend on how many tokens are\n"
      "                     verified beside it, bit for bit: always so on cpu, refused on cuda;\n"
      "                     default false\n"
      "\n"
      "Example:\n"
      "  specdec check configs/quickstart.yaml");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return check(context, *arguments); };
  });
}

void add_list_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("list", "list strategies, drafters, verifiers and options");
  const auto arguments = std::make_shared<ListArguments>();
  command->add_flag("--matrix", arguments->matrix,
                    "every drafter x shape x verifier x {greedy, sampled}: lossless, lossy, or "
                    "refused with its reason");
  command->add_flag("--json", arguments->json, "the matrix as one JSON object");
  command->footer("Examples:\n  specdec list\n  specdec list --matrix");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return list(context, *arguments); };
  });
}

}  // namespace specdec
