#include "experiments/cli/generation_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "core/error.h"
#include "experiments/cli/commands.h"
#include "experiments/run/sampling_config.h"

namespace specdec {
namespace {

void add_sampling_options(CLI::App& command, SamplingParams& sampling) {
  command.add_option("--temperature", sampling.temperature, "0 = greedy")->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "keep the k most likely tokens; 0 = all");
  command.add_option("--top-p", sampling.top_p,
                     "keep the smallest set of tokens with this probability mass");
  command.add_option("--min-p", sampling.min_p,
                     "drop tokens below this fraction of the highest probability");
  command.add_option("--repetition-penalty", sampling.repetition_penalty, "1 = none");
}

}  // namespace

SamplingParams make_sampling(const GenerationArguments& arguments, const ModelFiles& files) {
  SamplingParams sampling = arguments.sampling;
  for (const std::string& text : arguments.logit_bias) {
    try {
      add_logit_bias(text, files, sampling);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("--logit-bias: {}", error.what()));
    }
  }
  sampling.validate();
  return sampling;
}

void warn_of_sampling(const CommandContext& context, const GenerationArguments& arguments,
                      const StrategyConfig& strategy, bool has_grammar, int64_t samples) {
  if (context.flags.quiet || !arguments.sampling.greedy()) {
    return;
  }
  std::vector<std::string> flags = unused_sampling(arguments.sampling, "--", '-');
  // Verifiers and the corrections of a grammar may draw, whatever the temperature.
  const bool draws = !strategy.verifier.empty() || has_grammar;
  if (arguments.seed != 0 && !draws) {
    flags.emplace_back("--seed");
  }
  if (samples > 1 && !draws) {
    flags.emplace_back("--samples");
  }
  if (!flags.empty()) {
    context.err << fmt::format(
        "warning: {}: no effect at temperature 0, where the most likely token is taken; give "
        "--temperature to draw tokens\n",
        fmt::join(flags, ", "));
  }
}

void note_chat_format(const CommandContext& context, const ModelFiles& files) {
  if (!context.flags.quiet && files.tokenizer != nullptr &&
      files.tokenizer->chat_template().empty()) {
    context.err << fmt::format(
        "note: {} has no chat template: turns are written in the format of the models whose turn "
        "pieces its vocabulary has, which a base model was not trained on\n",
        files.folder.string());
  }
}

StopRule make_stop(const GenerationArguments& arguments, const ModelFiles& files, bool ignore_eos) {
  StopRule stop;
  stop.max_new_tokens = arguments.max_new_tokens;
  stop.stop_strings = arguments.stops;
  for (const auto& text : arguments.stops) {
    if (text.empty()) {
      throw ConfigError("--stop: an empty text would stop at once");
    }
  }
  if (!arguments.stops.empty() && files.tokenizer == nullptr) {
    throw ConfigError(files.no_text(
        fmt::format("--stop: {} has no tokenizer, so text cannot stop it", files.folder.string())));
  }
  if (!ignore_eos) {
    stop.end_ids = files.config.end_ids;
  }
  return stop;
}

std::optional<GrammarConfig> read_grammar_text(const GenerationArguments& arguments,
                                               const ModelFiles& files) {
  if (!arguments.grammar) {
    return std::nullopt;
  }
  const std::string& text = *arguments.grammar;
  if (files.tokenizer == nullptr) {
    throw ConfigError(files.no_text(fmt::format(
        "--grammar: {} has no tokenizer, and a grammar speaks of text", files.folder.string())));
  }
  if (text.empty() || text.front() != '{') {
    const auto kind = grammar_kind_of_file(text);
    if (!kind) {
      throw ConfigError("--grammar: '" + text +
                        "': the kind of a grammar follows from the file's ending (.json, .regex, "
                        ".gbnf, .lark); or give it inline, such as '{type: regex, file: ...}'");
    }
    return GrammarConfig{read_grammar_file(text, *kind)};
  }
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode node(parse_yaml(text, "--grammar", false), errors);
  auto grammar = read_grammar(node);
  if (grammar.per_prompt) {
    node.fail("per_prompt", "there are no prompts with schemas here; give a file or a schema");
  }
  errors->throw_if_any();
  return grammar;
}

void print_warnings(const CommandContext& context, const ModelLoader& loader) {
  if (!context.flags.quiet) {
    for (const std::string& warning : loader.warnings()) {
      context.err << "warning: " << warning << "\n";
    }
  }
}

void add_generation_options(CLI::App& command, GenerationArguments& arguments) {
  command.add_option("MODEL", arguments.model, kModelHelp)->required();
  add_adapter_option(command, arguments.adapters);
  command.add_option("--max-new-tokens", arguments.max_new_tokens, "most new tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24U))
      ->capture_default_str();
  command.add_option("--stop", arguments.stops, "stop at this string; may be repeated")
      ->expected(1)
      ->allow_extra_args(false)  // else "[x]" would be taken for a list
      ->take_all();
  add_sampling_options(command, arguments.sampling);
  command
      .add_option("--logit-bias", arguments.logit_bias,
                  "add a number to the logits of a token, given by its id or a text that is one "
                  "token; -inf forbids it; may be repeated")
      ->type_name("TOKEN=NUMBER")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  add_active_layers_option(command, arguments.active_layers);
  add_seed_option(command, arguments.seed);
  command.add_option("--strategy", arguments.strategy, "a strategy, as inline YAML of a config")
      ->capture_default_str();
  command.add_option("--grammar", arguments.grammar,
                     "constrain the output: a file (.json schema, .regex, .gbnf, .lark), or "
                     "inline YAML as under `grammar:` in a config");
}

}  // namespace specdec
