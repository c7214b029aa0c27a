#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <ostream>
#include <vector>

#include "core/error.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/config_kind.h"
#include "experiments/components/draft_needs.h"
#include "experiments/components/memory_needs.h"
#include "experiments/run/experiment.h"
#include "experiments/run/plan_check.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"
#include "experiments/train/answer_plan.h"
#include "experiments/train/train_check.h"
#include "experiments/train/train_config.h"
#include "experiments/train/training_folder.h"

namespace specdec {
namespace {

struct ConfigArguments {
  std::string file;
  std::vector<std::string> sets;
  std::string out;
  bool has_out = false;
  bool memory = false;        ///< of check: state it
  std::string memory_device;  ///< on this device; "" = model.device
  JsonOption json;
};

void add_config_options(CLI::App& command, ConfigArguments& arguments) {
  command.add_option("FILE", arguments.file, "experiment config (YAML)")->required();
  command
      .add_option("--set", arguments.sets,
                  "override a key: --set max_new_tokens=64; list items by index or by the name "
                  "that reports show: --set "
                  "strategies.prompt_lookup.draft_length=8. May be repeated")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
}

ExperimentPlan load(const CommandContext& context, const ConfigArguments& arguments) {
  auto overrides = context.overrides();
  overrides.insert(overrides.end(), arguments.sets.begin(), arguments.sets.end());
  return load_experiment(arguments.file, overrides, context.components);
}

void print_warnings(std::ostream& out, const std::string& file,
                    const std::vector<std::string>& warnings) {
  for (const auto& warning : warnings) {
    out << fmt::format("{}: warning: {}\n", file, warning);
  }
}

int run(const CommandContext& context, const ConfigArguments& arguments) {
  if (arguments.has_out && arguments.out.empty()) {
    throw ConfigError(
        "--out: the folder's name is empty; name one, or leave --out away for runs/NAME");
  }
  refuse_training(arguments.file, arguments.sets);
  const auto plan = load(context, arguments);
  if (const std::string unused = unused_sampling_text(plan);
      !unused.empty() && !context.flags.quiet) {
    print_warnings(context.err, arguments.file, {unused});
  }
  const auto out = arguments.has_out ? std::filesystem::path(arguments.out)
                                     : std::filesystem::path("runs") / plan.name;
  JsonOutput json(arguments.json, context.out);
  const InterruptGuard guard;
  try {
    const auto report = run_experiment(
        plan, {.out = out, .quiet = context.flags.quiet, .command = context.command_line},
        context.err);
    json.write_result([&](std::ostream& text) { write_table(text, report); },
                      [&](std::ostream& text) { write_json(text, report); });
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

/// "3 prompts (1 more is longer than prompts.max_prompt_tokens)": those that the first point of a
/// sweep runs.
std::string prompts_text(const ExperimentPlan& plan, const PlanCheck& found) {
  const int64_t all = std::ssize(plan.points.front().config.prompts.prompts);
  const int64_t left_out = found.left_out.empty() ? 0 : found.left_out.front();
  const std::string more = left_out == 0
                               ? ""
                               : fmt::format(" ({} more {} longer than prompts.max_prompt_tokens)",
                                             left_out, left_out == 1 ? "is" : "are");
  return fmt::format("{} prompt{}{}", all - left_out, all - left_out == 1 ? "" : "s", more);
}

void print_memory_row(std::ostream& out, const DraftNeeds& needs) {
  out << fmt::format("{:<28} {:>14} {:>14} {:>14} {:>14} {:>14}\n", needs.key, needs.weights,
                     needs.cache, needs.activations, needs.results, needs.total());
}

/// A row for the target and one for each drafter: bytes, once a text is as long as it may be.
void print_memory(std::ostream& out, const ExperimentPlan& plan, const std::string& device) {
  const ExperimentConfig& config = plan.points.front().config;
  ModelOptions options = config.model;
  options.device = device.empty() ? options.device : device;
  const ModelFiles& target = plan.models->read(config.weights, config.model.active_layers.count);
  const int64_t context = max_length_of(options, target.config);
  const MemoryNeeds all = memory_needs(target, options, context);
  check_device(options);
  std::vector<DraftNeeds> rows = {model_needs("model", all)};
  const int64_t weights = rows.front().weights;
  const int64_t limit = options.memory.bytes;
  const bool is_limited = limit > 0 && weights > limit;
  rows.front().weights = is_limited ? limit : weights;
  for (const StrategyConfig& strategy : config.strategies) {
    for (const MeasureDraft& measure : strategy.notes.drafts) {
      rows.push_back(measure(target, options, context));
    }
  }
  out << fmt::format(
      "bytes of memory at {} tokens on {}{}\n{:<28} {:>14} {:>14} {:>14} {:>14} {:>14}\n", context,
      options.device, plan.sweep_keys.empty() ? "" : ", of the sweep's first point", "", "weights",
      "cache", "activations", "results", "total");
  for (const DraftNeeds& row : rows) {
    print_memory_row(out, row);
  }
  if (is_limited) {
    out << fmt::format(
        "model.memory_limit: {} of {} bytes of the model's weights; the other layers are read from "
        "disk\n",
        limit, weights);
  }
}

int check(const CommandContext& context, const ConfigArguments& arguments) {
  const bool states_memory = arguments.memory || !arguments.memory_device.empty();
  if (states_memory && (describes_training(arguments.file, arguments.sets) ||
                        describes_answers(arguments.file, arguments.sets))) {
    throw ConfigError(
        fmt::format("--memory: {} is no experiment, whose memory alone is stated: leave it out",
                    arguments.file));
  }
  if (describes_training(arguments.file, arguments.sets)) {
    const auto found = check_training(arguments.file, arguments.sets);
    print_warnings(context.out, arguments.file, found.warnings);
    context.out << fmt::format("{}: {}: all right\n", arguments.file, found.summary);
    return 0;
  }
  if (describes_answers(arguments.file, arguments.sets)) {
    const AnswerPlan answers = load_answer_plan(arguments.file, arguments.sets);
    if (const std::string why = refused_training_folder(answers.out, FolderWork::kAnswers);
        !why.empty()) {
      throw ConfigError(fmt::format("{}: out: {}", arguments.file, why));
    }
    context.out << fmt::format("{}: lets {} answer {} prompts into {}: all right\n", arguments.file,
                               answers.target.string(), answers.prompts, answers.out.string());
    return 0;
  }
  const auto plan = load(context, arguments);
  const auto found = check_plan(plan);
  print_warnings(context.out, arguments.file, found.warnings);
  if (!found.mistakes.empty()) {
    throw ConfigError(fmt::format("{0}: {1}", arguments.file,
                                  fmt::join(found.mistakes, "\n" + arguments.file + ": ")));
  }
  const auto& first = plan.points.front().config;
  const auto sweep = plan.sweep_keys.empty()
                         ? std::string()
                         : fmt::format(", {} points of a sweep", plan.points.size());
  context.out << fmt::format("{}: {} strategies, {}, {} repeats{}: all right\n", arguments.file,
                             first.strategies.size(), prompts_text(plan, found), first.repeats,
                             sweep);
  if (states_memory) {
    print_memory(context.out, plan, arguments.memory_device);
  }
  return 0;
}

}  // namespace

void add_run_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("run", "run an experiment: prints a table, writes a report");
  const auto arguments = std::make_shared<ConfigArguments>();
  add_config_options(*command, *arguments);
  auto* out = command->add_option(
      "--out", arguments->out, "run folder (default: runs/NAME); an interrupted run resumes in it");
  add_json_option(*command, arguments->json, "the summary, as in summary.json");
  command->footer(
      "Examples:\n"
      "  specdec run configs/pair.yaml\n"
      "  specdec run configs/pair.yaml --set prompts.limit=4 --out runs/quick");
  command->callback([&context, arguments, out] {
    arguments->has_out = out->count() > 0;
    context.action = [&context, arguments] { return run(context, *arguments); };
  });
}

void add_check_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand(
      "check", "check a config without loading weights: keys, files, prompts that fit");
  const auto arguments = std::make_shared<ConfigArguments>();
  add_config_options(*command, *arguments);
  command->add_flag("--memory", arguments->memory,
                    "state the memory of the model and of each drafter, head or draft model, at "
                    "model.max_length");
  command
      ->add_option("--memory-device", arguments->memory_device,
                   "the same on another device, which need not be there: cpu, cuda, mps")
      ->check(CLI::IsMember({"cpu", "cuda", "mps"}));
  command->footer(
      "Also reports prompts that do not fit the model's context (which 'run' skips) and a\n"
      "max_new_tokens beyond it.\n"
      "\n"
      "Keys of `model`, besides weights (a folder or GGUF file):\n"
      "  adapters           LoRA folders that are applied: a list of {path, scale}; default none\n"
      "  dtype              stored (default: also the blocks of GGUF), float32,\n"
      "                     float64, bfloat16, float16, or int8 (blocks of 32 weights with a "
      "scale)\n"
      "  activations        float32 (default), or int8: inputs of products are rounded too; needs\n"
      "                     weights in blocks of integers\n"
      "  kv_dtype           float32 or bfloat16, of the key/value cache: half the bytes, rounded "
      "when\n"
      "                     written; default: float32, or float64 where the weights are\n"
      "  cache              {type: ...}, see 'specdec list cache' (default: paged)\n"
      "  device             cpu (default), cuda, cuda:N, mps\n"
      "  cuda_graphs        forwards of up to 64 tokens that are kept as CUDA graphs, at most; 0 = "
      "none;\n"
      "                     default 32\n"
      "  prefill_graphs     the same of longer forwards; default 0\n"
      "  prefill_products   exact (default), or library (cuda): see --prefill-products\n"
      "  max_length         tokens of prompt and output; default: the config's, at most 8192\n"
      "  active_layers      run the model with so many of its layers, the first ones; default 0: "
      "all\n"
      "  memory_limit       most memory of the weights, such as 8GB or 512MiB (cuda: of the GPU):\n"
      "                     layers that do not fit are read from disk in each forward; default:\n"
      "                     no limit\n"
      "  layer_file         where these layers are written, packed; default: in ~/.cache/specdec\n"
      "  include_mtp        let drafters of type mtp load the checkpoint's modules; default false\n"
      "  verify_consistent  require that a token's logits do not depend, bit for bit, on how many\n"
      "                     tokens are verified with it: always true on cpu, refused on cuda;\n"
      "                     default false\n"
      "\n"
      "Examples:\n"
      "  specdec check configs/pair.yaml\n"
      "  specdec check configs/train/eagle.yaml");
  command->callback([&context, arguments] {
    context.action = [&context, arguments] { return check(context, *arguments); };
  });
}

}  // namespace specdec
