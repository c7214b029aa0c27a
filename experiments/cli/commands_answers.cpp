#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "experiments/cli/commands.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/train/answers.h"

namespace specdec {

void add_answers_command(CLI::App& app, CommandContext& context) {
  struct Arguments {
    std::string file;
    std::vector<std::string> sets;
  };
  auto* command = app.add_subcommand(
      "answers", "let a chat model write prompts and answers to train a head on");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("FILE", arguments->file, "config (YAML)")->required();
  command
      ->add_option("--set", arguments->sets, "override a key: --set prompts=200. May be repeated")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command->footer(
      "Writes a folder that head trainings name under 'answers': answers.jsonl (tokens of prompts\n"
      "and answers) and features.bf16 (what the model's layers said of them). An interrupted run\n"
      "goes on with the same command; a larger 'prompts' adds to what is there. On a GPU, "
      "--device\n"
      "cuda, leave target.activations out and take more rows: --set rows=64.\n\n"
      "Example: specdec answers configs/train/smollm2_answers.yaml");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] {
      if (!describes_answers(arguments->file, arguments->sets)) {
        throw ConfigError(fmt::format(
            "{}: describes no answers: those have 'target' and neither 'head', 'data', 'model' nor "
            "'strategies'; trainings are started with specdec train, experiments with specdec run",
            arguments->file));
      }
      refuse_model_flags(context.flags,
                         "the config says how the target answers, by target.dtype and "
                         "target.activations, and the cache holds as many rows as it answers at a "
                         "time: leave it out");
      AnswerPlan plan = load_answer_plan(arguments->file, arguments->sets);
      ModelOptions options = context.model_options();
      options.dtype = plan.target_options.dtype;
      options.activations = plan.target_options.activations;
      plan.target_options = options;
      const InterruptGuard interrupts;
      LogLine log;
      if (!context.flags.quiet) {
        log = [&context](const std::string& line) { context.err << line << std::endl; };
      }
      make_answers(plan, log);
      context.out << plan.out.string() << "\n";
      return 0;
    };
  });
}

}  // namespace specdec
