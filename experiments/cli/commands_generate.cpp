#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "core/formats/json_text.h"
#include "core/hub_cache.h"
#include "core/prefix_store.h"
#include "core/randomness.h"
#include "core/uncached_model.h"
#include "experiments/cli/commands.h"
#include "experiments/cli/generation_arguments.h"
#include "experiments/cli/generation_json.h"
#include "experiments/cli/generation_room.h"
#include "experiments/cli/planned_generation.h"
#include "experiments/cli/prompt_arguments.h"
#include "experiments/cli/saved_state.h"
#include "experiments/cli/text_line.h"
#include "experiments/cli/token_printer.h"
#include "experiments/components/library_products.h"
#include "experiments/metrics/cache_records.h"
#include "experiments/metrics/request_metrics.h"
#include "experiments/run/prompt_grammars.h"
#include "experiments/terminal/interrupt.h"
#include "experiments/terminal/json_option.h"

namespace specdec {
namespace {

struct GenerateArguments : GenerationArguments {
  PromptArguments prompt;
  bool ignore_eos = false;
  bool no_cache = false;
  JsonOption json;
  int64_t samples = 1;
  bool has_logprobs = false;
  int64_t alternatives = 0;        ///< to each token, with their log-probabilities
  std::string save_state, resume;  ///< files; "" = none
  int64_t prefix_cache_mb = 0;
};

/// Generates once; streams to the output if asked to.
Generation run_one(const CommandContext& context, const Request& request, bool streams,
                   DecodingStrategy& strategy) {
  TokenPrinter printer(context.out, request.tokenizer, request.resumed);
  Request streamed = request;
  streamed.on_tokens = [&](TokenSpan tokens) {
    if (request.on_tokens) {
      request.on_tokens(tokens);
    }
    if (streams) {
      printer.print(tokens);
    }
    InterruptGuard::check();
  };
  try {
    Generation generation = strategy.generate(streamed);
    if (streams) {
      printer.finish();
    }
    return generation;
  } catch (const Error&) {
    printer.break_line();
    throw;
  } catch (const Interrupted&) {
    printer.break_line();
    throw;
  }
}

std::unique_ptr<DecodingStrategy> make_strategy(const StrategyConfig& config, LanguageModel& target,
                                                ModelLoader& loader, bool no_cache) {
  BuildContext build = measuring_context(target, loader);
  try {
    return config.make(build);
  } catch (const ConfigError& error) {
    throw no_cache ? ConfigError(fmt::format("--no-cache: {}", error.what())) : error;
  }
}

void check_arguments(const GenerateArguments& arguments, const GlobalFlags& flags) {
  if (arguments.resume.empty()) {
    check_prompt_arguments(arguments.prompt);
  }
  check_state_output(arguments.save_state);
  if (arguments.samples > 1 && !arguments.save_state.empty()) {
    throw ConfigError("--save-state keeps one generation: leave out --samples");
  }
  if (arguments.no_cache && !flags.cache.empty()) {
    throw ConfigError(
        "--cache: --no-cache keeps no keys and values of earlier steps: leave one of them out");
  }
  if (arguments.has_logprobs && arguments.json.file.empty()) {
    throw ConfigError("--logprobs goes into the JSON: add --json");
  }
  const std::pair<const char*, bool> others[] = {
      {"--no-cache", arguments.no_cache},
      {"--prefix-cache-mb", arguments.prefix_cache_mb > 0},
      {"--logprobs", arguments.has_logprobs},
      {"--save-state", !arguments.save_state.empty()},
      {"--resume", !arguments.resume.empty()}};
  for (const auto& [flag, is_given] : others) {
    if (is_given && flags.prefill_products == "library") {
      throw ConfigError(fmt::format(
          "--prefill-products: library is for prompts that are read at once and kept as they were "
          "read: leave it out, or {}",
          flag));
    }
  }
}

/// The generation before its first step: begun by the arguments, or the one that --resume names.
GenerationState begin_generation(const GenerateArguments& arguments, const GlobalFlags& flags,
                                 const ModelFiles& files,
                                 const std::optional<GrammarConfig>& grammar) {
  const std::string name = grammar_name(grammar, arguments.grammar);
  if (!arguments.resume.empty()) {
    return load_state(arguments.resume, name);
  }
  return {.model = arguments.model,
          .prompt = prompt_tokens(arguments.prompt, files, grammar ? grammar->tools : ""),
          .output = {},
          .sampling = make_sampling(arguments, files),
          .seed = arguments.seed,
          .grammar = name,
          .cache = asked_text(flags),
          .cached = {}};
}

/// One sample; what it adds to the state's output is saved, after Ctrl-C too.
Generation run_saved(const CommandContext& context, const Request& request, bool streams,
                     DecodingStrategy& strategy, StateSaver& saver) {
  try {
    Generation generation = run_one(context, request, streams, strategy);
    saver.save();
    return generation;
  } catch (const Interrupted&) {
    saver.save();
    throw;
  }
}

void check_library_flag(const ModelOptions& options, const ModelFiles& files) {
  try {
    check_library_products(options, *files.open);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--prefill-products: {}", error.what()));
  }
}

void write_results(JsonOutput& json, const nlohmann::json& results) {
  if (json.is_wanted()) {
    const auto all = results.size() > 1 ? nlohmann::json{{"samples", results}} : results[0];
    json.write(json_text(all) + "\n");
    json.commit();
  }
}

std::shared_ptr<const CompiledGrammar> compiled_grammar(const std::optional<GrammarConfig>& grammar,
                                                        const ModelFiles& files,
                                                        const StopRule& stop) {
  return grammar ? PromptGrammars().get(*grammar, {}, *files.tokenizer, stop.end_ids).grammar
                 : nullptr;
}

/// What a model had read from disk, its cache's tiers had done, and prompts had found in the prefix
/// cache, before a generation.
struct ReadsBefore {
  std::optional<LayerReads> layers;
  std::optional<KvTiers> tiers;
  int64_t reused_tokens = 0;
};

int64_t reused_tokens(const PrefixStore* prefixes) {
  return prefixes == nullptr ? 0 : prefixes->statistics().reused_tokens;
}

RequestMetrics metrics_of(const Generation& generation, const Request& request,
                          const TransformerModel& model, const ReadsBefore& before) {
  const int64_t prompt = std::ssize(request.prompt);
  const int64_t reused = reused_tokens(request.prefixes) - before.reused_tokens;
  RequestMetrics metrics = request_metrics(generation, prompt, std::min(prompt, reused));
  if (before.layers) {
    metrics.disk = *layer_reads(model.weights()) - *before.layers;
  }
  metrics.cache = model.cache().statistics();
  if (before.tiers) {
    metrics.cache->tiers = tiers_between(*before.tiers, *metrics.cache->tiers);
  }
  return metrics;
}

/// Result of one sample, without its statistics; `text` is what it continues.
nlohmann::json sample_json(const GenerateArguments& arguments, const Generation& generation,
                           const Request& request, LanguageModel& target,
                           const std::vector<Token>& text) {
  nlohmann::json json = generation_json(generation, request);
  if (arguments.has_logprobs) {
    json["logprobs"] = logprobs_json(target, text, generation.tokens, arguments.alternatives);
  }
  return json;
}

/// What the samples of a call share.
struct SampledCall {
  const GenerateArguments& arguments;
  const ModelFiles& files;
  const StopRule& stop;
  const Constraint& constraint;
  const TransformerModel& model;
  LanguageModel& target;
  DecodingStrategy& strategy;
  bool library_products;
};

/// Generates the samples and prints them; returns what --json says of each.
nlohmann::json run_samples(const CommandContext& context, const SampledCall& call,
                           GenerationState& state, const JsonOutput& json) {
  const GenerateArguments& arguments = call.arguments;
  const std::vector<Token> resumed = state.output;
  const c10::InferenceMode guard;
  const InterruptGuard interrupts;
  const auto prefixes = known_prefixes(arguments.prefix_cache_mb, state, call.target);
  StateSaver saver(arguments.save_state, state, call.target);
  auto results = nlohmann::json::array();
  for (int64_t sample = 0; sample < arguments.samples; ++sample) {
    if (arguments.samples > 1 && !json.replaces_text()) {
      context.out << fmt::format("[sample {} of {}]\n", sample + 1, arguments.samples);
    }
    state.repeat += sample > 0 ? 1 : 0;
    CounterRandomness random = state.randomness();
    const std::vector<Token> text = state.text();
    const Request request{.prompt = state.prompt,
                          .sampling = state.sampling,
                          .stop = call.stop,
                          .random = random,
                          .tokenizer = call.files.tokenizer.get(),
                          .on_tokens = saver.collector(),
                          .constraint = call.constraint,
                          .resumed = resumed,
                          .prefixes = prefixes.get(),
                          .library_products = call.library_products};
    const ReadsBefore reads{layer_reads(call.model.weights()),
                            call.model.cache().statistics().tiers, reused_tokens(prefixes.get())};
    const Generation generation =
        run_saved(context, request, !json.replaces_text(), call.strategy, saver);
    RequestMetrics metrics = metrics_of(generation, request, call.model, reads);
    if (arguments.no_cache) {
      metrics.cache.reset();
    }
    context.err << (json.replaces_text() || context.flags.quiet ? "" : metrics_line(metrics));
    if (json.is_wanted()) {
      results.push_back(sample_json(arguments, generation, request, call.target, text));
      results.back()["statistics"] = metrics_json(metrics);
      if (call.library_products) {
        results.back()["prefill_products"] = "library";
      }
    }
  }
  return results;
}

int generate(const CommandContext& context, const GenerateArguments& arguments) {
  check_arguments(arguments, context.flags);
  ModelCatalog catalog;
  const ModelFiles& files = catalog.read(arguments.model, arguments.active_layers);
  if (!context.flags.quiet) {
    print_notes(files, context.err);
  }
  if (arguments.prompt.chat) {
    note_chat_format(context, files);
  }
  JsonOutput json(arguments.json, context.out);
  const auto grammar = read_grammar_text(arguments, files);
  GenerationState state = begin_generation(arguments, context.flags, files, grammar);
  auto stop = make_stop(arguments, files, arguments.ignore_eos);
  stop.max_new_tokens += std::ssize(state.output);
  const auto [profile, options, config] = plan_generation(context, arguments,
                                                          {.files = files,
                                                           .catalog = catalog,
                                                           .sampling = state.sampling,
                                                           .max_new_tokens = stop.max_new_tokens,
                                                           .has_grammar = grammar.has_value()});
  Constraint constraint = config.constraint;
  constraint.grammar = compiled_grammar(grammar, files, stop);

  context.note_profile(profile);
  check_library_flag(options, files);
  check_prompt_fits(files, options, std::ssize(state.text()));
  if (!arguments.no_cache) {
    const int64_t left = stop.max_new_tokens - std::ssize(state.output);
    check_room(files, options, config, std::ssize(state.text()), left);
  }
  ModelLoader loader(options, &catalog);
  const auto model = loader.load(arguments.model, parse_adapters(arguments.adapters));
  UncachedModel uncached(*model);
  LanguageModel& target = arguments.no_cache ? static_cast<LanguageModel&>(uncached) : *model;
  const auto strategy = make_strategy(config, target, loader, arguments.no_cache);
  print_warnings(context, loader);
  if (arguments.resume.empty()) {
    warn_of_sampling(context, arguments, config, grammar.has_value(), arguments.samples);
  }
  if (!arguments.save_state.empty() || !arguments.resume.empty()) {
    check_can_resume(*strategy);
  }

  const SampledCall call{arguments, files,  stop,      constraint,
                         *model,    target, *strategy, options.library_products};
  write_results(json, run_samples(context, call, state, json));
  return 0;
}

void add_state_options(CLI::App& command, GenerateArguments& arguments) {
  auto* save = command.add_option("--save-state", arguments.save_state,
                                  "write the generation to this file when it ends, or is "
                                  "interrupted (Ctrl-C): its tokens, keys "
                                  "and values, sampling and place in the grammar");
  auto* resume = command.add_option(
      "--resume", arguments.resume,
      "go on with a saved generation; --max-new-tokens counts the tokens that are new now. Give "
      "the model, its options, --grammar, --stop and --strategy as they were");
  for (auto* option : {save, resume}) {
    option->check(not_empty("a file"));
  }
  for (const char* other :
       {"--prompt", "--prompt-file", "--tokens", "--chat", "--temperature", "--top-k", "--top-p",
        "--min-p", "--repetition-penalty", "--logit-bias", "--seed", "--samples"}) {
    resume->excludes(command.get_option(other));
  }
  auto* prefixes =
      command
          .add_option("--prefix-cache-mb", arguments.prefix_cache_mb,
                      "keep keys and values of texts, so that --samples read the prompt once; MB, "
                      "0 = none")
          ->check(CLI::Range(int64_t{0}, int64_t{1} << 24U))
          ->capture_default_str();
  for (auto* keeps : {save, resume, prefixes}) {
    keeps->excludes(command.get_option("--no-cache"));
  }
}

}  // namespace

void add_generate_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("generate", "generate from one prompt, streaming the text");
  const auto arguments = std::make_shared<GenerateArguments>();
  add_prompt_options(*command, arguments->prompt);
  command->add_flag("--ignore-eos", arguments->ignore_eos, "do not stop at end-of-sequence tokens");
  command->add_flag("--no-cache", arguments->no_cache,
                    "compute each token from the whole text before it, without keys and values of "
                    "earlier steps: the oracle of the cached decoding, slow");
  add_generation_options(*command, *arguments);
  command
      ->add_option("-n,--samples", arguments->samples,
                   "samples to draw, as repeats 0, 1, ... of the seed")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20U))
      ->capture_default_str();
  auto* logprobs = command
                       ->add_option("--logprobs", arguments->alternatives,
                                    "with --json: log-probabilities of each new token and of the K "
                                    "most likely ones, before sampling parameters")
                       ->expected(0, 1)
                       ->type_name("[K]")
                       ->check(CLI::Range(int64_t{0}, int64_t{1} << 20U));
  add_state_options(*command, *arguments);
  add_json_option(*command, arguments->json,
                  "one JSON object: tokens (new ones only), text, stop_reason, statistics; "
                  "hypotheses of a beam search; {samples: [...]} for several samples");
  command->footer(
      "Examples:\n"
      "  specdec generate models/target --prompt \"To be, or\" --temperature 0.8 --seed 1\n"
      "  specdec generate models/target --prompt \"To be, or\" --json --strategy\n"
      "    '{type: speculative, drafter: {type: draft_model, weights: models/draft}}'\n"
      "  specdec generate models/target --prompt \"To be, or\" --json --strategy\n"
      "    '{type: beam_search, num_beams: 4}'\n"
      "  specdec generate models/target --prompt \"To be, or\" --adapter my_lora:0.5\n"
      "  specdec generate models/target --prompt \"A date:\" --grammar "
      "configs/grammars/iso_date.gbnf\n"
      "  specdec generate models/target --prompt \"To be, or\" --save-state to_be.state\n"
      "  specdec generate models/target --resume to_be.state --max-new-tokens 32");
  command->callback([&context, arguments, logprobs] {
    arguments->has_logprobs = logprobs->count() > 0;
    context.action = [&context, arguments] {
      arguments->model = find_model(arguments->model).string();
      return generate(context, *arguments);
    };
  });
}

}  // namespace specdec
