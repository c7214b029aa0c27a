#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <ostream>

#include "core/error.h"
#include "core/hub_cache.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/profiler.h"
#include "experiments/simulate/layer_table.h"
#include "experiments/terminal/interrupt.h"

namespace specdec {
namespace {

void check_save(const CommandContext& context, const ProfileArguments& arguments) {
  if (arguments.random_weights) {
    throw ConfigError("--save: keeps what is fast for the model itself; leave out --random");
  }
  if (const std::string device = context.model_options().device; device != "cpu") {
    throw ConfigError(fmt::format(
        "--save: keeps threads and pages of the CPU, and the device is '{}'; leave it out",
        device));
  }
  if (!arguments.drafters.empty() && arguments.prompt_file.empty()) {
    throw ConfigError(
        "--save with --draft keeps the draft length that is fastest on a text: name one with "
        "--prompt-file");
  }
  if (!arguments.prompt_file.empty() && compared_text(arguments).empty()) {
    throw ConfigError(fmt::format("--prompt-file: {} is empty", arguments.prompt_file));
  }
}

int profile(const CommandContext& context, const ProfileArguments& arguments) {
  arguments.sampling.validate();
  if (arguments.saves) {
    check_save(context, arguments);
  }
  if (arguments.random_weights && !arguments.drafters.empty()) {
    throw ConfigError(
        "--draft: drafts for random weights say nothing; --random times the target's forwards "
        "alone");
  }
  if (arguments.by_layer && !arguments.random_weights) {
    throw ConfigError("--by-layer times layers of random weights: give --random too");
  }
  if (!std::all_of(arguments.acceptance.begin(), arguments.acceptance.end(),
                   [](double share) { return share >= 0.0 && share <= 1.0; })) {
    throw ConfigError("--acceptance: expected probabilities from 0 to 1");
  }
  JsonOutput json(arguments.json, context.out);
  const InterruptGuard interrupts;
  Profiler profiler(context, arguments);
  const Profile result = arguments.by_layer ? profiler.run_by_layer() : profiler.run();
  json.write(write_profile(result));
  json.commit();
  if (!json.replaces_text()) {
    print_profile(context.out, result);
    if (!arguments.acceptance.empty()) {
      print_predictions(context.out, result.target, arguments.acceptance, arguments.draft_cost);
    }
  }
  for (const std::string& line : arguments.saves ? profiler.save() : std::vector<std::string>()) {
    (json.replaces_text() ? context.err : context.out) << line << "\n";
  }
  return 0;
}

void add_save_options(CLI::App& command, ProfileArguments& arguments) {
  auto* save = command.add_flag(
      "--save", arguments.saves,
      "write what is fast here (threads of prefills and of steps, page size, draft lengths; dtypes "
      "that flags ask for) to specdec-profile.yaml beside the model, whence generate, chat and run "
      "take it");
  command
      .add_option("--prompt-file", arguments.prompt_file,
                  "with --save and --draft: the text on which draft lengths are compared")
      ->needs(save);
}

constexpr const char* kProfileExamples =
    "Examples:\n"
    "  specdec profile models/target --threads 1 --contexts 16,512\n"
    "  specdec profile models/target --draft models/draft --draft '{type: prompt_lookup}'\n"
    "    --json machine.json\n"
    "  specdec profile models/target --draft models/draft --save --prompt-file README.md\n"
    "  specdec profile bench/shapes/gemma3-270m --random --dtype bfloat16 --threads 2\n"
    "  specdec profile bench/shapes/gemma4-e2b --random --by-layer --dtype bfloat16\n"
    "    --acceptance 0.8,0.7,0.65,0.6 --draft-cost 0.05";

}  // namespace

void add_profile_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "profile",
      "time forwards of several numbers of tokens, and drafters: where speculation pays off");
  const auto arguments = std::make_shared<ProfileArguments>();
  command->add_option("MODEL", arguments->model, kModelHelp)->required();
  command->add_flag("--random", arguments->random_weights,
                    "random weights of the shape that MODEL/config.json says, float32 if --dtype "
                    "names none: times a model that is not there");
  command->add_flag("--by-layer", arguments->by_layer,
                    "with --random: time one layer of each kind and the head, and add them up: for "
                    "models that do not fit in memory");
  command
      ->add_option("--acceptance", arguments->acceptance,
                   "predict speed-ups: the probability that the first drafted token is accepted, "
                   "the second once the first is, and so on")
      ->delimiter(',');
  command
      ->add_option("--draft-cost", arguments->draft_cost,
                   "of a drafted token of these predictions, in forwards of one token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command
      ->add_option(
          "--draft", arguments->drafters,
          "a drafter, as inline YAML of a config, or the folder of a draft model; may be repeated")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--lengths", arguments->lengths, "draft lengths to time")
      ->capture_default_str();
  command->add_option("--contexts", arguments->contexts, "context lengths to time at")
      ->capture_default_str();
  command->add_option("--new-tokens", arguments->new_tokens, "numbers of tokens of timed forwards")
      ->capture_default_str();
  command
      ->add_option("--repeats", arguments->repeats,
                   "measurements per median; quartiles are printed from 5 on")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->capture_default_str();
  command
      ->add_option("--temperature", arguments->sampling.temperature,
                   "sampling temperature of the steps: sampling takes time too")
      ->capture_default_str();
  add_save_options(*command, *arguments);
  add_json_option(*command, arguments->json, "the profile, for specdec simulate");
  command->footer(kProfileExamples);
  command->callback([&context, arguments] {
    context.action = [&context, arguments] {
      arguments->model = find_model(arguments->model).string();
      return profile(context, *arguments);
    };
  });
}

}  // namespace specdec
