#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "core/error.h"
#include "core/randomness.h"
#include "experiments/commands.h"
#include "experiments/config_file.h"
#include "experiments/experiment_config.h"
#include "experiments/interrupt.h"
#include "experiments/metrics.h"

namespace specdec {
namespace {

struct GenerateArguments {
  std::string model;
  std::string prompt, prompt_file, tokens;
  bool has_prompt = false;
  bool chat = false;
  bool ignore_eos = false;
  bool json = false;
  int64_t max_new_tokens = 128;
  uint64_t seed = 0;
  SamplingParams sampling;
  std::vector<std::string> stops;
  std::string strategy = "{type: autoregressive}";
};

std::vector<Token> encode(const GenerateArguments& arguments, const ModelFiles& files) {
  if (!arguments.tokens.empty()) {
    if (arguments.chat) {
      throw ConfigError("--chat needs a text: give --prompt, not --tokens");
    }
    return parse_token_list(arguments.tokens);
  }
  if (files.tokenizer == nullptr) {
    throw ConfigError(
        fmt::format("{} has no tokenizer (tokenizer.model or tokenizer.json): give "
                    "--tokens instead of a text",
                    files.folder.string()));
  }
  const auto text = arguments.prompt_file.empty()
                        ? arguments.prompt
                        : read_text_file(arguments.prompt_file, size_t{64} << 20U);
  return encode_prompt(*files.tokenizer, {{"user", text}}, arguments.chat, files.config.bos_id);
}

StopRule make_stop(const GenerateArguments& arguments, const ModelFiles& files) {
  StopRule stop;
  stop.max_new_tokens = arguments.max_new_tokens;
  stop.stop_strings = arguments.stops;
  for (const auto& text : arguments.stops) {
    if (text.empty()) {
      throw ConfigError("--stop: an empty text would stop at once");
    }
  }
  if (!arguments.stops.empty() && files.tokenizer == nullptr) {
    throw ConfigError(
        fmt::format("--stop: {} has no tokenizer, so text cannot stop it", files.folder.string()));
  }
  if (!arguments.ignore_eos) {
    stop.end_ids = files.config.end_ids;
  }
  return stop;
}

StrategyRegistry::Make read_strategy_text(const std::string& text, const RunPlan& plan,
                                          const Components& components) {
  const auto errors = std::make_shared<ConfigErrors>();
  const ConfigNode node(parse_yaml(text, "--strategy", false), errors);
  auto strategy = read_strategy(node, plan, components);
  errors->throw_if_any();
  return strategy.make;
}

nlohmann::json statistics_json(const Generation& generation) {
  Counts counts;
  counts.add(generation);
  const auto number = [](const std::optional<double>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  return {{"new_tokens", counts.tokens},
          {"steps", counts.steps},
          {"drafted", counts.drafted},
          {"accepted", counts.accepted},
          {"acceptance_rate", number(acceptance_rate(counts))},
          {"tokens_per_step", number(tokens_per_step(counts))},
          {"prefill_seconds", counts.prefill_seconds},
          {"decode_seconds", counts.decode_seconds},
          {"draft_seconds", counts.draft_seconds},
          {"verify_seconds", counts.verify_seconds},
          {"tokens_per_second", number(decode_tokens_per_second(counts))}};
}

void print_result(const CommandContext& context, const GenerateArguments& arguments,
                  const Generation& generation, const Tokenizer* tokenizer) {
  const auto statistics = statistics_json(generation);
  if (arguments.json) {
    const nlohmann::json json = {{"tokens", generation.tokens},
                                 {"text", decode_text(tokenizer, generation.tokens)},
                                 {"stop_reason", stop_reason_name(generation.stop_reason)},
                                 {"statistics", statistics}};
    context.out << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return;
  }
  if (!context.flags.quiet) {
    context.err << fmt::format("[{}: {}]\n", stop_reason_name(generation.stop_reason),
                               statistics.dump());
  }
}

/// Writes tokens as they come: as text, or as ids where there is no tokenizer.
class TokenPrinter {
 public:
  TokenPrinter(std::ostream& out, const Tokenizer* tokenizer) : out_(out) {
    if (tokenizer != nullptr) {
      decoder_.emplace(*tokenizer);
    }
  }
  void print(TokenSpan tokens) {
    for (const Token token : tokens) {
      out_ << (decoder_ ? decoder_->push(token) : fmt::format("{}{}", first_ ? "" : ",", token));
      first_ = false;
    }
    out_.flush();
    if (!out_) {
      throw Error("standard output cannot be written (closed, or the disk is full)");
    }
  }
  void finish() { out_ << (decoder_ ? decoder_->finish() : "") << "\n"; }

 private:
  std::ostream& out_;
  std::optional<StreamingDecoder> decoder_;
  bool first_ = true;
};

int generate(const CommandContext& context, const GenerateArguments& arguments) {
  const int sources = int{arguments.has_prompt} + int{!arguments.prompt_file.empty()} +
                      int{!arguments.tokens.empty()};
  if (sources != 1) {
    throw ConfigError("give one of --prompt, --prompt-file and --tokens");
  }
  arguments.sampling.validate();
  ModelCatalog catalog;
  const ModelFiles& files = catalog.read(arguments.model);
  const auto prompt = encode(arguments, files);
  const auto stop = make_stop(arguments, files);
  const RunPlan plan{context.components, &files, catalog, arguments.sampling,
                     arguments.max_new_tokens};
  const auto make = read_strategy_text(arguments.strategy, plan, context.components);

  ModelLoader loader(context.model_options());
  const auto target = loader.load(arguments.model);
  BuildContext build{*target, loader, [](const std::string&, LanguageModel& model) {
                       const c10::InferenceMode guard;
                       return measure_cost_curve(model, {});
                     }};
  const auto strategy = make(build);

  const c10::InferenceMode guard;
  const InterruptGuard interrupts;
  CounterRandomness random(arguments.seed);
  TokenPrinter printer(context.out, files.tokenizer.get());
  const Request request{.prompt = prompt,
                        .sampling = arguments.sampling,
                        .stop = stop,
                        .random = random,
                        .tokenizer = files.tokenizer.get(),
                        .on_tokens = [&](TokenSpan tokens) {
                          InterruptGuard::check();
                          if (!arguments.json) {
                            printer.print(tokens);
                          }
                        }};
  const auto generation = strategy->generate(request);
  if (!arguments.json) {
    printer.finish();
  }
  print_result(context, arguments, generation, files.tokenizer.get());
  return 0;
}

void add_sampling_options(CLI::App& command, GenerateArguments& arguments) {
  auto& sampling = arguments.sampling;
  command.add_option("--temperature", sampling.temperature, "0 = greedy")->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "keep the k likeliest tokens; 0 = all");
  command.add_option("--top-p", sampling.top_p, "keep the smallest set with this mass");
  command.add_option("--min-p", sampling.min_p, "drop tokens below this share of the best one's");
  command.add_option("--repetition-penalty", sampling.repetition_penalty, "1 = none");
  command.add_option("--seed", arguments.seed, "of the random choices")->capture_default_str();
}

}  // namespace

void add_generate_command(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("generate", "continue one prompt and stream the text");
  const auto arguments = std::make_shared<GenerateArguments>();
  command->add_option("MODEL", arguments->model, "checkpoint folder")->required();
  auto* prompt = command->add_option("--prompt", arguments->prompt, "the text to continue");
  command->add_option("--prompt-file", arguments->prompt_file, "a file that holds the text");
  command->add_option("--tokens", arguments->tokens, "token ids to continue, such as 2,5,7");
  command->add_flag("--chat", arguments->chat, "the text is a user's turn in Gemma's chat format");
  command->add_option("--max-new-tokens", arguments->max_new_tokens, "stop after so many")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24U))
      ->capture_default_str();
  command->add_flag("--ignore-eos", arguments->ignore_eos, "go on after end-of-sequence tokens");
  command->add_option("--stop", arguments->stops, "stop at this text; may be repeated")
      ->expected(1)
      ->allow_extra_args(false)  // else "[x]" would be taken for a list
      ->take_all();
  add_sampling_options(*command, *arguments);
  command->add_option("--strategy", arguments->strategy, "a strategy as in a config, inline YAML")
      ->capture_default_str();
  command->add_flag("--json", arguments->json,
                    "one JSON object: tokens (the new ones), text, stop_reason, statistics");
  command->footer(
      "Examples:\n"
      "  specdec generate models/target --prompt \"To be, or\" --temperature 0.8 --seed 1\n"
      "  specdec generate models/target --prompt \"To be, or\" --json --strategy\n"
      "    '{type: speculative, drafter: {type: draft_model, weights: models/draft}}'");
  command->callback([&context, arguments, prompt] {
    arguments->has_prompt = prompt->count() > 0;
    context.action = [&context, arguments] { return generate(context, *arguments); };
  });
}

}  // namespace specdec
