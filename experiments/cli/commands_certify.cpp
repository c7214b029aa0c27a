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
                         "an experiment's YAML file: test its strategies on its own checkpoints");
  command.get_option("--seeds")->excludes(config);
  command.add_option("--set", arguments.sets, "key=value of the config, as 'specdec run' takes it")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->needs(config);
  command
      .add_option("--detect", statistical.detect,
                  "with --config, when it samples: total variation a token to find; half of it "
                  "takes four times as many tokens")
      ->check(CLI::Range(0.002, 0.5))
      ->needs(config)
      ->capture_default_str();
  command
      .add_option("--samples", statistical.samples,
                  "with --config, when it samples: outputs drawn a prompt (default: as many as "
                  "show a total variation of 0.1 between them)")
      ->check(CLI::Range(20, 10'000'000))
      ->needs(config);
  command
      .add_option("--tokens", statistical.tokens,
                  "with --config, when it samples: new tokens of them to compare, after the first")
      ->check(CLI::Range(1, 64))
      ->needs(config)
      ->capture_default_str();
  command
      .add_option("--prompts", statistical.prompts,
                  "with --config, when it samples: how many prompts to draw them from")
      ->check(CLI::Range(1, 100'000))
      ->needs(config)
      ->capture_default_str();
}

}  // namespace

void add_certify_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "certify", "prove that what is registered keeps its promise (lossless, or declared lossy)");
  const auto arguments = std::make_shared<CertifyArguments>();
  command->add_option("NAME", arguments->exact.names,
                      "only combinations with these strategies, drafters, verifiers, draft lengths "
                      "or trees (default: everything registered)");
  command->add_option("--seeds", arguments->exact.seeds, "pairs of random models to try")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_config_mode(*command, *arguments);
  add_json_option(*command, arguments->json, "one JSON object");
  command->footer(
      "Builds every combination of the registered components from YAML on tiny random float64\n"
      "Gemmas (vocabulary of 3) and enumerates every random outcome. Greedy: the tokens must be\n"
      "those of plain forwards. Sampled: the distribution of the output must differ from the one "
      "computed\n"
      "token by token from plain forwards by less than 1e-12, with temperature, top-k, top-p,\n"
      "min-p, penalties and stops. What is declared lossy is shown with its difference. Refused\n"
      "combinations are listed with the reason; a component that nothing tested is a failure.\n"
      "\n"
      "With --config the strategies of an experiment are tested on its real checkpoints. Sampled:\n"
      "at every position of ordinary texts, how often the token is one that the drafter rates "
      "above\n"
      "the target, against the target's probability of that; and Pearson's chi-square of the next\n"
      "tokens of N samples against the target's exact distribution; p-values adjusted by Holm. "
      "What\n"
      "the tests would find is printed; one that would find no wrong verifier is an error. "
      "Greedy:\n"
      "identical tokens over all prompts, and an explanation where one differs: position, both "
      "logit\n"
      "gaps, near tie or not, widths. What is declared lossy is measured, not tested.\n"
      "\n"
      "Exit codes: 0 every promise is kept, 1 one is broken or was not tested, 2 an error that you "
      "can fix.\n"
      "\n"
      "Examples:\n"
      "  specdec certify\n"
      "  specdec certify rejection --seeds 5\n"
      "  specdec certify draft_model --json\n"
      "  specdec certify --config configs/quickstart.yaml\n"
      "  specdec certify --config configs/sampled.yaml --detect 0.02");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] {
      return arguments->config.empty() ? certify_exactly(context, *arguments)
                                       : certify_statistically(context, *arguments);
    };
  });
}

}  // namespace specdec
