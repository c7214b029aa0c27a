#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/formats/atomic_file.h"
#include "core/formats/json_text.h"
#include "experiments/certify/certify_config.h"
#include "experiments/certify/certify_replay.h"
#include "experiments/certify/certify_report.h"
#include "experiments/certify/certify_state.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/config_kind.h"
#include "experiments/config/names.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

struct CertifyArguments {
  CertifyOptions exact;
  std::string config;
  std::vector<std::string> sets;
  ConfigCertifyOptions statistical;
  std::vector<std::string> strategies;  ///< of the config; none = all
  std::string rows;                     ///< file to write recorded rows to; "" = none
  std::string replay;                   ///< file of rows to replay without the model; "" = none
  bool replay_only = false;
  std::string state;  ///< file that keeps finished tests until all are; "" = none
  JsonOption json;
};

int certify_exactly(const CommandContext& context, CertifyArguments& arguments) {
  refuse_model_flags(context.flags,
                     "certify without --config enumerates tiny models of its own in float64: leave "
                     "it out, or test your model with --config FILE");
  JsonOutput json(arguments.json, context.out);
  const InterruptGuard guard;
  arguments.exact.quiet = context.flags.quiet;
  arguments.exact.isolate = true;
  const auto result = certify(context.components, arguments.exact, context.err);
  json.write_result([&](std::ostream& out) { write_certificate(out, result); },
                    [&](std::ostream& out) { write_certificate_json(out, result); });
  return result.passed() ? 0 : 1;
}

/// Keeps the strategies that were asked for; those with a verifier come first. Throws ConfigError
/// for a name that the config does not have.
void choose_strategies(ExperimentPlan& plan, const std::vector<std::string>& wanted) {
  std::vector<std::string> known;
  for (auto& point : plan.points) {
    for (const auto& strategy : point.config.strategies) {
      if (std::find(known.begin(), known.end(), strategy.name) == known.end()) {
        known.push_back(strategy.name);
      }
    }
  }
  for (const auto& name : wanted) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw ConfigError("--strategies: the config has no strategy '" + name + "'" +
                        known_names_text(name, known));
    }
  }
  for (auto& point : plan.points) {
    auto& strategies = point.config.strategies;
    if (!wanted.empty()) {
      std::erase_if(strategies, [&](const StrategyConfig& strategy) {
        return std::find(wanted.begin(), wanted.end(), strategy.name) == wanted.end();
      });
    }
    std::stable_partition(strategies.begin(), strategies.end(), [](const StrategyConfig& strategy) {
      return !strategy.verifier.empty();
    });
  }
}

/// Replays rows that were recorded now, or before, and appends to `tests`.
void replay_plan(const CommandContext& context, const CertifyArguments& arguments,
                 const ExperimentPlan& plan, ReplayStage& stage, std::vector<ReplayTest>& tests) {
  const ReplayOptions options{.quiet = context.flags.quiet};
  const auto rows = arguments.replay.empty() ? record_rows(plan, stage, options, context.err)
                                             : read_rows_json(arguments.replay);
  if (!arguments.rows.empty()) {
    std::ostringstream text;
    write_rows_json(text, rows);
    write_file(arguments.rows, text.str());
  }
  replay_config(plan, stage, rows, options, tests);
}

int report_replay(const std::vector<ReplayTest>& tests, JsonOutput& json) {
  const nlohmann::json whole = {{"replay", replay_json(tests)}, {"passed", passed(tests)}};
  json.write_result([](std::ostream&) {},
                    [&](std::ostream& out) { out << json_text(whole, 1) << "\n"; });
  return passed(tests) ? 0 : 1;
}

/// The certificate's JSON, with replay's beside it.
void write_both_json(std::ostream& out, const ConfigCertificate& certificate,
                     const std::vector<ReplayTest>& tests) {
  std::ostringstream text;
  write_config_certificate_json(text, certificate);
  auto whole = nlohmann::json::parse(text.str());
  whole["replay"] = replay_json(tests);
  whole["passed"] = certificate.passed() && passed(tests);
  out << json_text(whole, 1) << "\n";
}

/// What is known after Ctrl-C.
void report_interrupted(const CommandContext& context, const CertifyArguments& arguments,
                        const ConfigCertificate& certificate) {
  if (!certificate.tests.empty()) {
    write_config_certificate(context.out, certificate);
  }
  context.err << (arguments.state.empty()
                      ? "interrupted: this is what is finished. With --state FILE a later call "
                        "goes on from there\n"
                      : fmt::format("interrupted: {} holds the finished tests; the same command "
                                    "goes on:\n  {}\n",
                                    arguments.state, context.command_line));
}

ConfigCertificate certify_by_samples(const CommandContext& context, CertifyArguments& arguments,
                                     const ExperimentPlan& plan) {
  auto& options = arguments.statistical;
  options.quiet = context.flags.quiet;
  std::optional<CertifyState> state;
  if (!arguments.state.empty()) {
    state.emplace(arguments.state, certify_identity(plan, options));
    options.state = &*state;
  }
  ConfigCertificate certificate;
  try {
    certify_config(plan, options, context.err, certificate);
  } catch (const Interrupted&) {
    report_interrupted(context, arguments, certificate);
    throw;
  }
  if (state) {
    state->remove();
  }
  return certificate;
}

int certify_statistically(const CommandContext& context, CertifyArguments& arguments) {
  if (!arguments.exact.names.empty()) {
    throw ConfigError("certify takes NAMEs or --config, not both: a config names its strategies");
  }
  JsonOutput json(arguments.json, context.out);
  refuse_training(arguments.config, arguments.sets);
  auto overrides = context.overrides();
  overrides.insert(overrides.end(), arguments.sets.begin(), arguments.sets.end());
  const auto stage = std::make_shared<ReplayStage>();
  const auto components = replay_components(context.components, stage);
  auto plan = load_experiment(arguments.config, overrides, components);
  choose_strategies(plan, arguments.strategies);
  refuse_library_products(plan, arguments.config);
  if (!arguments.state.empty()) {  // mistakes are said before the work
    (void)CertifyState(arguments.state, certify_identity(plan, arguments.statistical));
  }
  const InterruptGuard guard;
  std::vector<ReplayTest> replayed;
  try {
    replay_plan(context, arguments, plan, *stage, replayed);
  } catch (const Interrupted&) {
    write_replay(context.out, replayed);
    throw;
  }
  if (!json.replaces_text()) {
    write_replay(context.out, replayed);
  }
  if (arguments.replay_only || !arguments.replay.empty()) {
    return report_replay(replayed, json);
  }
  const auto certificate = certify_by_samples(context, arguments, plan);
  json.write_result([&](std::ostream& out) { write_config_certificate(out, certificate); },
                    [&](std::ostream& out) { write_both_json(out, certificate, replayed); });
  return certificate.passed() && passed(replayed) ? 0 : 1;
}

void add_replay(CLI::App& command, CertifyArguments& arguments, CLI::Option* config) {
  command
      .add_option("--strategies", arguments.strategies, "strategies of the config (default: all)")
      ->delimiter(',')
      ->expected(1, 1000)
      ->allow_extra_args(false)
      ->needs(config);
  auto* rows = command
                   .add_option("--rows", arguments.rows,
                               "write the recorded distributions to this JSON file")
                   ->needs(config);
  command
      .add_option("--replay", arguments.replay,
                  "replay the distributions of a file that --rows wrote; loads no weights, and "
                  "draws no samples")
      ->excludes(rows)
      ->needs(config);
  command
      .add_flag("--replay-only", arguments.replay_only,
                "record and replay distributions, and draw no samples")
      ->needs(config);
}

void add_config_mode(CLI::App& command, CertifyArguments& arguments) {
  auto& statistical = arguments.statistical;
  auto* config =
      command.add_option("--config", arguments.config,
                         "an experiment config: test its strategies on its own checkpoints");
  command.get_option("--seeds")->excludes(config);
  command.get_option("--limit")->excludes(config);
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
  command
      .add_option("--state", arguments.state,
                  "keep finished tests in this file until all are finished, so that the same "
                  "command goes on after Ctrl-C")
      ->needs(config);
  add_replay(command, arguments, config);
}

constexpr const char* kCertifyFooter =
    "Without --config: builds every combination of the registered components on tiny random "
    "float64\n"
    "Gemma models (3 tokens) and enumerates every random outcome. Greedy tokens must equal those "
    "of\n"
    "plain forwards; sampled distributions must match the target's to 1e-12, with temperature, "
    "top-k,\n"
    "top-p, min-p, penalties and stops. Lossy components are shown with their difference, "
    "refused\n"
    "combinations with the reason; a component that no combination tested is a failure, and so "
    "is "
    "one\n"
    "that crashes or does not end: combinations run in a process of their own.\n"
    "\n"
    "With --config: tests the strategies of an experiment on its checkpoints.\n"
    "Sampled configs, first by replay: distributions of a few steps are recorded, small targets "
    "and\n"
    "drafters are made of them, and every random outcome of the config's verifiers and draft "
    "shapes is\n"
    "enumerated, to 1e-12. Then by samples: at every position, whether the output favours the "
    "tokens that the drafter "
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
    "  specdec certify --config configs/sampled.yaml --detect 0.02\n"
    "  specdec certify --config configs/gemma3.yaml --set sampling.temperature=0.8 "
    "--replay-only";

}  // namespace

void add_certify_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "certify",
      "check that strategies are lossless: exactly on tiny models, or statistically on yours");
  const auto arguments = std::make_shared<CertifyArguments>();
  command->add_option("NAME", arguments->exact.names,
                      "only combinations that hold one of these strategies, drafters, verifiers, "
                      "draft lengths or trees (default: all registered)");
  command->add_option("--seeds", arguments->exact.seeds, "random target-draft pairs to test")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--limit", arguments->exact.limit_seconds,
                   "seconds that a combination may take with one pair; one that takes longer is "
                   "broken, as if it never ended")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  add_config_mode(*command, *arguments);
  add_json_option(*command, arguments->json, "one JSON object");
  command->footer(kCertifyFooter);
  command->callback([&context, arguments] {
    context.action = [&context, arguments] {
      return arguments->config.empty() ? certify_exactly(context, *arguments)
                                       : certify_statistically(context, *arguments);
    };
  });
}

}  // namespace specdec
