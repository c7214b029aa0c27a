#include "experiments/cli/profiler.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <ostream>
#include <utility>

#include "core/error.h"
#include "core/kernels/threads_during.h"
#include "core/randomness.h"
#include "decoders/autoregressive.h"
#include "experiments/cli/planned_generation.h"
#include "experiments/components/machine_measurement.h"
#include "experiments/config/config_file.h"
#include "experiments/config/yaml_writer.h"
#include "experiments/run/experiment_config.h"
#include "experiments/simulate/layer_table.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/progress.h"

namespace specdec {
namespace {

constexpr size_t kLongestText = size_t{64} << 20U;
constexpr int64_t kComparedTokens = 64;

/// A drafter's config: inline YAML, or the folder of a draft model.
std::shared_ptr<YamlTree> parse_drafter(const std::string& text) {
  if (text.find('{') == std::string::npos) {
    auto tree = YamlTree::map("--draft");
    tree->set("type", "--draft", YamlTree::scalar("draft_model", false));
    tree->set("weights", "--draft", YamlTree::scalar(text, true));
    return tree;
  }
  return parse_yaml(text, "--draft", false);
}

std::shared_ptr<YamlTree> strategy_tree(const std::shared_ptr<YamlTree>& drafter, int64_t length) {
  auto tree = YamlTree::map("--draft");
  tree->set("type", "--draft", YamlTree::scalar("speculative", false));
  tree->set("draft_length", "--draft", YamlTree::scalar(std::to_string(length), false));
  tree->set("drafter", "--draft", drafter->clone());
  return tree;
}

/// Counts round and round, so that drafters which retrieve find something.
std::vector<Token> some_prompt(int64_t length, int64_t vocab) {
  std::vector<Token> tokens;
  for (int64_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<Token>((3 + i % 29) % vocab));
  }
  return tokens;
}

ModelOptions options_of(const CommandContext& context, const ProfileArguments& arguments) {
  ModelOptions options = context.model_options();
  options.random_weights = arguments.random_weights;
  return options;
}

}  // namespace

std::string compared_text(const ProfileArguments& arguments) {
  return read_text_file(arguments.prompt_file, kLongestText);
}

Profiler::Profiler(const CommandContext& context, const ProfileArguments& arguments)
    : context_(context),
      arguments_(arguments),
      loader_(options_of(context, arguments), &catalog_) {}

StrategyRegistry::Make Profiler::prepare(const std::shared_ptr<YamlTree>& tree) {
  const auto errors = std::make_shared<ConfigErrors>();
  const RunPlan plan{.components = context_.components,
                     .target = &catalog_.read(arguments_.model),
                     .models = catalog_,
                     .sampling = arguments_.sampling,
                     .target_options = &loader_.options()};
  auto strategy = read_strategy(ConfigNode(tree, errors), plan, context_.components);
  errors->throw_if_any();
  return strategy.make;
}

std::vector<Profiler::Arm> Profiler::build_arms() {
  BuildContext build = measuring_context(*target_, loader_);
  std::vector<Arm> arms;
  for (size_t i = 0; i < arguments_.drafters.size(); ++i) {
    for (const Token length : parse_token_list(arguments_.lengths)) {
      const auto make = prepare(strategy_tree(parse_drafter(arguments_.drafters[i]), length));
      arms.push_back({i, make(build), length});
    }
  }
  return arms;
}

void Profiler::measure_steps(const std::vector<Token>& prompt, Profile& profile) {
  AutoregressiveDecoding plain(*target_);
  const std::vector<Arm> arms = build_arms();
  std::vector<StepTimer> timers = {{plain, prompt, 0, arguments_.sampling}};
  for (const Arm& arm : arms) {
    timers.emplace_back(*arm.strategy, prompt, arm.length, arguments_.sampling);
  }
  time_in_turns(timers, arguments_.repeats);
  profile.plain = timers.front().cost().value();
  for (const std::string& text : arguments_.drafters) {
    const auto tree = parse_drafter(text);
    const auto* type = tree->find("type");
    profile.drafters.push_back({.name = type == nullptr ? "" : type->value->text,
                                .description = write_yaml_flow(*tree),
                                .lengths = {}});
  }
  for (size_t i = 0; i < arms.size(); ++i) {
    if (const auto cost = timers[i + 1].cost()) {
      DrafterProfile& drafter = profile.drafters[arms[i].drafter];
      drafter.prompt_token =
          std::max(0.0, cost->first - cost->draft.median) / static_cast<double>(prompt.size());
      drafter.lengths.push_back(*cost);
    }
  }
  for (size_t i = 0; i < profile.drafters.size(); ++i) {
    if (profile.drafters[i].lengths.empty()) {
      throw Error(
          fmt::format("--draft {}: never drafted {} tokens at a time, so its cost is not known",
                      arguments_.drafters[i], arguments_.lengths));
    }
  }
}

CostCurveOptions Profiler::curve_options() const {
  CostCurveOptions options;
  options.repeats = arguments_.repeats;
  options.between = InterruptGuard::check;
  const auto numbers = [](const std::string& option, const std::string& list) {
    const std::vector<Token> parsed = parse_token_list(list);
    if (std::find(parsed.begin(), parsed.end(), 0) != parsed.end()) {
      throw ConfigError(fmt::format("{} {}: every number must be at least 1", option, list));
    }
    return std::vector<int64_t>(parsed.begin(), parsed.end());
  };
  options.contexts = numbers("--contexts", arguments_.contexts);
  options.new_tokens = numbers("--new-tokens", arguments_.new_tokens);
  std::sort(options.new_tokens.begin(), options.new_tokens.end());
  options.new_tokens.erase(std::unique(options.new_tokens.begin(), options.new_tokens.end()),
                           options.new_tokens.end());
  const int64_t longest = std::ssize(arguments_.acceptance) + 1;
  if (!arguments_.acceptance.empty() && options.new_tokens.back() < longest) {
    throw ConfigError(fmt::format(
        "--new-tokens {}: --acceptance predicts forwards of up to {} tokens; time them too",
        arguments_.new_tokens, longest));
  }
  if (options.new_tokens.front() != 1) {
    throw ConfigError(fmt::format(
        "--new-tokens {}: 1 is missing, the forward of plain decoding, with which others are "
        "compared",
        arguments_.new_tokens));
  }
  return options;
}

void Profiler::check_contexts(const CostCurveOptions& options, int64_t max_length) const {
  if (std::none_of(options.contexts.begin(), options.contexts.end(),
                   [&](int64_t context) { return context < max_length; })) {
    throw Error(
        fmt::format("--contexts {}: none of these contexts fits the model, which takes {} tokens",
                    arguments_.contexts, max_length));
  }
  std::vector<std::string> left_out;
  for (const int64_t context : options.contexts) {
    std::vector<int64_t> widths;
    std::copy_if(options.new_tokens.begin(), options.new_tokens.end(), std::back_inserter(widths),
                 [&](int64_t width) { return context + width > max_length; });
    if (!widths.empty()) {
      left_out.push_back(fmt::format("{} after {}", fmt::join(widths, ", "), context));
    }
  }
  if (!left_out.empty() && !context_.flags.quiet) {
    context_.err << fmt::format(
        "note: forwards that do not fit the model, which takes {} tokens, are left out: {}\n",
        max_length, fmt::join(left_out, "; "));
  }
}

std::string Profiler::machine(const std::string& formats) const {
  return fmt::format("{}, {} threads, {}, {}", read_environment().cpu, at::get_num_threads(),
                     loader_.options().device, formats);
}

Profile Profiler::run_by_layer() {
  const ModelOptions& model = loader_.options();
  check_activations(model);
  const c10::InferenceMode guard;
  const ModelDescription description = describe_model(arguments_.model);
  check_contexts(curve_options(), description.config.max_position_embeddings);
  Progress progress(context_.err, Progress::choose_style(context_.flags.quiet),
                    std::ssize(layer_kinds(description.plan)) + 1, "kinds of layers");
  const LayerProfileOptions options{
      .curve = curve_options(),
      .load = load_options(model),
      .measured = [&progress](const std::string& what) { progress.advance(what); }};
  Profile profile{.model = arguments_.model,
                  .machine = {},
                  .target = {},
                  .repeats = arguments_.repeats,
                  .temperature = arguments_.sampling.temperature,
                  .plain = {},
                  .drafters = {}};
  profile.layers = measure_by_layer(description, loader_.kv_store(), options);
  profile.target = profile.layers->whole;
  for (const std::string& note : profile.layers->notes) {
    context_.err << "note: " << note << "\n";
  }
  profile.machine = machine(fmt::format("random {} weights, put together from {} kinds of layers",
                                        model.dtype.empty() ? "float32" : model.dtype,
                                        profile.layers->kinds.size()));
  const CostPoint& plain = profile.target.points.front();
  profile.plain.verify = {.median = plain.seconds, .low = plain.low, .high = plain.high};
  return profile;
}

Profile Profiler::run() {
  const CostCurveOptions options = curve_options();
  for (const auto& drafter : arguments_.drafters) {
    (void)prepare(strategy_tree(parse_drafter(drafter), 1));  // its mistakes, before any work
  }
  target_ = loader_.load(arguments_.model);
  check_contexts(options, target_->max_length());
  const c10::InferenceMode guard;
  Profile profile{.model = arguments_.model,
                  .machine = machine(format_text(target_->weights())),
                  .target = measure_cost_curve(*target_, options),
                  .repeats = arguments_.repeats,
                  .temperature = arguments_.sampling.temperature,
                  .plain = {},
                  .drafters = {}};
  profile.reads = forward_reads(*target_, profile.target);
  profile.experts =
      measure_experts(loader_.weights(arguments_.model), loader_.kv_store(),
                      {.repeats = arguments_.repeats, .between = InterruptGuard::check});
  // Steps are measured at the first of the contexts that fits.
  const auto prompt = some_prompt(profile.target.points.front().context, target_->vocab_size());
  measure_steps(prompt, profile);
  return profile;
}

std::vector<Token> Profiler::text_tokens() {
  const ModelFiles& files = catalog_.read(arguments_.model);
  if (files.tokenizer == nullptr) {
    throw ConfigError(files.no_text(fmt::format(
        "--prompt-file: {} has no tokenizer, so it reads no text", files.folder.string())));
  }
  return encode_prompt(*files.tokenizer, {{"user", compared_text(arguments_)}},
                       /*chat=*/false, files.config.bos_id, "");
}

/// Of each drafter, by seconds per token of a continuation of the text.
std::vector<TimedChoice> Profiler::compare_lengths() {
  const std::vector<Token> prompt = text_tokens();
  const std::vector<Arm> arms = build_arms();
  std::vector<TimedChoice> choices;
  for (size_t i = 0; i < arguments_.drafters.size(); ++i) {
    std::map<int64_t, DecodingStrategy*> by_length;
    std::vector<int64_t> lengths;
    for (const Arm& arm : arms) {
      if (arm.drafter == i && by_length.emplace(arm.length, arm.strategy.get()).second) {
        lengths.push_back(arm.length);
      }
    }
    choices.push_back(choose_in_turns(
        lengths,
        [&](int64_t length) {
          CounterRandomness random(0);
          const Generation generation =
              by_length.at(length)->generate({.prompt = prompt,
                                              .sampling = arguments_.sampling,
                                              .stop = {.max_new_tokens = kComparedTokens},
                                              .random = random});
          return generation.decode_seconds / static_cast<double>(generation.tokens.size());
        },
        {.between = InterruptGuard::check}));
  }
  return choices;
}

std::vector<std::string> Profiler::save() {
  const c10::InferenceMode guard;
  const Environment environment = read_environment();
  const auto measured =
      measure_machine(loader_.weights(arguments_.model), {.format = kv_format_of(loader_.options()),
                                                          .max_length = target_->max_length(),
                                                          .most_threads = most_threads_,
                                                          .between = InterruptGuard::check});
  MachineProfile found{.processor = environment.cpu,
                       .cores = environment.cores,
                       .prefill_threads = measured.prefill_threads.chosen,
                       .decode_threads = measured.decode_threads.chosen,
                       .page_size = measured.page_size.chosen,
                       .dtype = context_.flags.dtype,
                       .kv_dtype = context_.flags.kv_dtype,
                       .drafts = {}};
  std::vector<std::string> lines = {"threads of prefills: " + measured.prefill_threads.text(),
                                    "threads of steps: " + measured.decode_threads.text(),
                                    "page size: " + measured.page_size.text()};
  if (!arguments_.drafters.empty()) {
    const ThreadsDuring threads(found.decode_threads);
    const auto lengths = compare_lengths();
    for (size_t i = 0; i < lengths.size(); ++i) {
      const auto drafter = parse_drafter(arguments_.drafters[i]);
      found.drafts.push_back({drafter_text(*drafter, {}), lengths[i].chosen});
      lines.push_back(fmt::format("draft length with {}, time of a token: {}",
                                  write_yaml_flow(*drafter), lengths[i].text()));
    }
  }
  const auto file = machine_profile_file(arguments_.model);
  write_machine_profile(file, found);
  lines.push_back(fmt::format("{}: written", file.string()));
  return lines;
}

}  // namespace specdec
