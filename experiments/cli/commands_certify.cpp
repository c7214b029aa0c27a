#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "core/error.h"
#include "experiments/certify/certify_config.h"
#include "experiments/certify/certify_report.h"
#include "experiments/cli/commands.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

struct CertifyArguments {
  CertifyOptions exact;
  std::string config;
  std::vector<std::string> sets;
  ConfigCertifyOptions statistical;
  JsonOption json;
};

int certify_exactly(const CommandContext& context, CertifyArguments& arguments) {
  JsonOutput json(arguments.json, context.out);
  const InterruptGuard guard;
  arguments.exact.quiet = context.flags.quiet;
  const auto result = certify(context.components, arguments.exact, context.err);
  json.write_result([&](std::ostream& out) { write_certificate(out, result); },
                    [&](std::ostream& out) { write_certificate_json(out, result); });
  return result.passed() ? 0 : 1;
}

int certify_statistically(const CommandContext& context, CertifyArguments& arguments) {
  if (!arguments.exact.names.empty()) {
    throw ConfigError("certify takes NAMEs or --config, not both: a config names its strategies");
  }
  JsonOutput json(arguments.json, context.out);
  auto overrides = context.overrides();
  overrides.insert(overrides.end(), arguments.sets.begin(), arguments.sets.end());
  const auto plan = load_experiment(arguments.config, overrides, context.components);
  const InterruptGuard guard;
  arguments.statistical.quiet = context.flags.quiet;
  const auto certificate = certify_config(plan, arguments.statistical, context.err);
  json.write_result([&](std::ostream& out) { write_config_certificate(out, certificate); },
                    [&](std::ostream& out) { write_config_certificate_json(out, certificate); });
  return certificate.passed() ? 0 : 1;
}

void add_config_mode(CLI::App& command, CertifyArguments& arguments) {
  auto& statistical = arguments.statistical;
  auto* config =
      command.add_option("--config", arguments.config,
                         "an experiment config: test its strategies on its own checkpoints");
  command.get_option("--seeds")->excludes(config);
  command.add_option("--set", arguments.sets, "override a config key, as in 'specdec run'")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->needs(config);
  command
      .add_option("--detect", statistical.detect,
                  "sampled configs: total variation per token to detect; halving it takes four "
                  "times as many tokens")
      ->check(CLI::Range(0.002, 0.5))
      ->needs(config)
      ->capture_default_str();
  command
      .add_option("--samples", statistical.samples,
                  "sampled configs: outputs per prompt of the chi-square test (default: enough to "
                  "detect a total variation of 0.1)")
      ->check(CLI::Range(20, 10'000'000))
      ->needs(config);
  command
      .add_option("--tokens", statistical.tokens,
                  "sampled configs: new tokens per output to compare, after the first")
      ->check(CLI::Range(1, 64))
      ->needs(config)
      ->capture_default_str();
  command
      .add_option("--prompts", statistical.prompts,
                  "sampled configs: prompts of the chi-square test")
      ->check(CLI::Range(1, 100'000))
      ->needs(config)
      ->capture_default_str();
}

}  // namespace

void add_certify_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "certify",
      "check that strategies are lossless: exactly on tiny models, or statistically on yours");
  const auto arguments = std::make_shared<CertifyArguments>();
  command->add_option("NAME", arguments->exact.names,
                      "only combinations with these strategies, drafters, verifiers, draft lengths "
                      "or trees (default: all registered)");
  command->add_option("--seeds", arguments->exact.seeds, "random target-draft pairs to test")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_config_mode(*command, *arguments);
  add_json_option(*command, arguments->json, "one JSON object");
  command->footer(
      "Without --config: builds every combination of the registered components on tiny random "
      "float64\n"
      "Gemma models (3 tokens) and enumerates every random outcome. Greedy tokens must equal those "
      "of\n"
      "plain forwards; sampled distributions must match the target's to 1e-12, with temperature, "
      "top-k,\n"
      "top-p, min-p, penalties and stops. Lossy components are shown with their difference, "
      "refused\n"
      "combinations with the reason; a component that no combination tested is a failure.\n"
      "\n"
      "With --config: tests the strategies of an experiment on its checkpoints.\n"
      "Sampled configs: at every position, whether the output favours the tokens that the drafter "
      "rates\n"
      "above the target; and Pearson's chi-square of the first tokens against the target's exact\n"
      "distribution. p-values are adjusted by Holm's method. The sensitivity is printed; a test "
      "too weak\n"
      "to find a wrong verifier draws more text, and fails if that does not help.\n"
      "Greedy configs: all prompts must give identical tokens; a difference is explained "
      "(position, logit\n"
      "gaps, near tie or not, widths). Lossy strategies are measured, not tested.\n"
      "\n"
      "Exit codes: 0 all lossless, 1 a strategy is not or was not tested, 2 an error that you can "
      "fix.\n"
      "\n"
      "Examples:\n"
      "  specdec certify\n"
      "  specdec certify rejection --seeds 5\n"
      "  specdec certify draft_model --json\n"
      "  specdec certify --config configs/pair.yaml\n"
      "  specdec certify --config configs/sampled.yaml --detect 0.02");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] {
      return arguments->config.empty() ? certify_exactly(context, *arguments)
                                       : certify_statistically(context, *arguments);
    };
  });
}

}  // namespace specdec
